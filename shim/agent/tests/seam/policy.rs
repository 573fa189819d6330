//! The policy epoch: the card hears of a rise before anything its program writes afterwards.

use mqttshim_schema::{Message, Notice, SessionId};
use rustix::event::PollFlags;

use crate::attack::{Hostile, hello};
use crate::card::{Card, Said};
use crate::program::{Program, ready};
use crate::stage::{QUEUE, Stage};
use crate::world::World;

/// The latest epoch the card was told, if any.
fn told(card: &Card) -> Option<u64> {
    card.said.iter().rev().find_map(|said| match said {
        Said::Policy { epoch, .. } => Some(*epoch),
        _ => None,
    })
}

#[test]
fn a_session_begins_with_the_promise_to_tell_of_every_rise() {
    let world = World::new();
    let _program = world.program();
    world.until("the promise", |card| told(card) == Some(0));
    let said = world.card(|card| card.said.clone());
    let session = SessionId(0);
    let opened = Said::Notice { session, what: Notice::SessionOpened };
    assert_eq!(said, [opened, Said::Policy { session, epoch: 0 }]);
}

#[test]
fn a_program_of_an_older_layout_promises_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(&folder.path().join("session.sock"), 64, QUEUE);
    stage.settle();
    let Message::Hello(older) = hello() else { unreachable!("it is a Hello") };
    assert!(older.layout_max < 4);
    let _program = Hostile::open(&mut stage);
    stage.settle();
    let opened = |said: &Said| matches!(said, Said::Notice { what: Notice::SessionOpened, .. });
    assert!(stage.card().said.iter().any(opened));
    assert_eq!(told(stage.card()), None);
}

#[test]
fn a_rise_wakes_an_agent_that_sleeps_and_keeps_one_awake_that_is_about_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.sock");
    let mut stage = Stage::new(&path, 64, QUEUE);
    stage.settle();
    let program = stage.serve(|| Program::open(&path));
    stage.settle();
    assert!(stage.agent.prepare_sleep());
    assert!(ready(stage.agent.readiness()).is_empty());
    program.session.raise_policy_epoch();
    assert!(ready(stage.agent.readiness()).contains(PollFlags::IN), "the doorbell");
    stage.agent.woke();
    stage.settle();
    assert_eq!(told(stage.card()), Some(1));
    program.session.raise_policy_epoch();
    assert!(ready(stage.agent.readiness()).is_empty(), "no system call while it is awake");
    assert!(!stage.agent.prepare_sleep());
    stage.settle();
    assert_eq!(told(stage.card()), Some(2));
}

#[test]
fn whatever_is_written_after_a_rise_is_told_after_it() {
    const ROUNDS: u64 = 20_000;
    let world = World::new();
    let program = world.program();
    let listener = program.listen(1883).expect("a free port");
    let (connection, _) = world.connection(&listener);
    for round in 1..=ROUNDS {
        program.session.raise_policy_epoch();
        connection.write_all(&round.to_ne_bytes());
    }
    world.until("the last word", |card| {
        let bytes = card.said.iter().map(|said| match said {
            Said::Data { bytes, .. } => bytes.len() as u64,
            _ => 0,
        });
        bytes.sum::<u64>() == 8 * ROUNDS
    });
    let said = world.card(|card| card.said.clone());
    let (mut epoch, mut written) = (0, 0);
    for said in said {
        match said {
            Said::Policy { epoch: next, .. } => {
                assert!(next == 0 || next > epoch, "{next} after {epoch}");
                epoch = next;
            }
            Said::Data { bytes, .. } => {
                written += bytes.len() as u64 / 8;
                assert!(epoch >= written, "write {written} was told in epoch {epoch}");
            }
            _ => {}
        }
    }
    assert_eq!((epoch, written), (ROUNDS, ROUNDS));
}

#[test]
fn the_agent_knows_of_a_rise_that_the_card_was_not_told_yet() {
    let world = World::new();
    let program = world.program();
    world.until("the promise", |card| told(card) == Some(0));
    let epoch = |world: &World| world.on_stage(|stage| stage.agent.policy_epoch(SessionId(0)));
    assert_eq!(epoch(&world), 0);
    program.session.raise_policy_epoch();
    assert_eq!(epoch(&world), 1);
    assert_eq!(
        world.on_stage(|stage| stage.agent.policy_epoch(SessionId(7))),
        0,
        "no such session"
    );
}

#[test]
fn rises_of_several_threads_are_all_counted() {
    let world = World::new();
    let program = world.program();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1000).for_each(|_| program.session.raise_policy_epoch()));
        }
    });
    world.until("every rise", |card| told(card) == Some(2000));
}
