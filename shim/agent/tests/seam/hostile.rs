//! Programs that obey nothing, from random tapes; and what such a program might aim at, by name.
//!
//! A failing tape is kept in `proptest-regressions` and tried first from then on.

use mqttshim_schema::{Message, SocketId};
use mqttshim_session::{LAYOUT_MAX, frame};
use proptest::prelude::*;
use rustix::event::PollFlags;
use rustix::net::RecvFlags;

use crate::attack::{Good, Hostile, TX_HEAD, bind, hello, play, send};
use crate::program::ready;
use crate::stage::{QUEUE, Stage};

fn stage() -> (tempfile::TempDir, Stage) {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(&folder.path().join("session.sock"), 64, QUEUE);
    (folder, stage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_tape_hurts_the_agent_or_another_program(
        tapes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..6)
    ) {
        let (_folder, mut stage) = stage();
        let good = Good::new(&mut stage);
        for tape in tapes {
            play(&tape, &mut stage, &good);
        }
    }
}

/// The errno of a request's answer, `None` while there is none.
fn answer(hostile: &Hostile, at: usize) -> Option<i32> {
    let mut buffer = vec![0; frame::FRAME_BYTES_MAX];
    let received = frame::receive(&hostile.replies[at], &mut buffer, RecvFlags::DONTWAIT).ok()?;
    match mqttshim_schema::decode(&buffer[..received.length]) {
        Ok(Message::Reply { errno, .. }) => Some(errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_has_a_limited_number_of_requests_under_way() {
    let (_folder, mut stage) = stage();
    stage.settle();
    let mut hostile = Hostile::open(&mut stage);
    stage.card().is_mute = true;
    for _ in 0..300 {
        hostile.request(&bind(SocketId(u32::MAX), 0), None);
        stage.settle();
    }
    assert_eq!((0..256).find_map(|at| answer(&hostile, at)), None, "the card has not answered");
    for at in 256..300 {
        assert_eq!(answer(&hostile, at), Some(105), "ENOBUFS");
    }
    drop(hostile);
    stage.settle();
    assert_eq!(stage.card().open(), 0);
}

#[test]
fn nothing_is_taken_from_a_program_that_has_not_said_hello_and_hello_only_once() {
    let (_folder, mut stage) = stage();
    stage.settle();
    let rude = Hostile::knock(&stage);
    send(&rude, &bind(SocketId(1), 0), &[]);
    stage.settle();
    assert!(ready(&rude).contains(PollFlags::HUP));
    let twice = Hostile::open(&mut stage);
    let control = twice.control.as_ref().unwrap();
    send(control, &hello(), &[]);
    stage.settle();
    assert!(ready(control).contains(PollFlags::HUP));
}

#[test]
fn a_program_that_is_expelled_and_writes_on_holds_nobody_up() {
    let (_folder, mut stage) = stage();
    let good = Good::new(&mut stage);
    let mut hostile = Hostile::open(&mut stage);
    hostile.settle_in(&mut stage);
    hostile.frame(b"no message", &[]);
    for turn in 0..100_u64 {
        hostile.put(TX_HEAD, &(hostile.get(TX_HEAD) + 24 * turn).to_ne_bytes());
        stage.turn();
    }
    assert!(ready(hostile.control.as_ref().unwrap()).contains(PollFlags::HUP));
    assert_eq!(stage.card().sockets_of(hostile.id), []);
    good.works(&mut stage);
    good.binds(&mut stage);
}

#[test]
fn a_killed_programs_memory_that_is_written_on_is_let_go_of() {
    let (_folder, mut stage) = stage();
    let good = Good::new(&mut stage);
    let mut hostile = Hostile::open(&mut stage);
    hostile.settle_in(&mut stage);
    // The control socket is closed, and somebody who got the memory from it goes on writing Notices without end.
    hostile.control = None;
    for _ in 0..100 {
        let head = hostile.get(TX_HEAD);
        hostile.put(TX_HEAD, &(head + 1024 * 1024).to_ne_bytes());
        stage.turn();
    }
    assert_eq!(stage.card().sockets_of(hostile.id), []);
    good.binds(&mut stage);
}

#[test]
fn a_wire_that_lives_on_elsewhere_names_no_later_socket() {
    let (_folder, mut stage) = stage();
    let good = Good::new(&mut stage);
    let mut hostile = Hostile::open(&mut stage);
    hostile.settle_in(&mut stage);
    let copies = hostile.attach_keeping_the_wire(&mut stage);
    stage.settle();
    let socket = *stage.card().sockets_of(hostile.id).last().unwrap();
    stage.card().reset(socket);
    stage.settle();
    // Its own end says so although a copy of the wire is open.
    let placeholder = hostile.placeholders.pop().unwrap();
    assert!(ready(&placeholder).contains(PollFlags::HUP));
    drop(placeholder);
    stage.settle();
    good.works(&mut stage);
    drop(copies);
}

#[test]
fn a_library_of_another_version_is_told_which_side_to_upgrade() {
    let (_folder, mut stage) = stage();
    stage.settle();
    for (version, layout) in [(2, 1), (1, LAYOUT_MAX + 1)] {
        let Message::Hello(mut newer) = hello() else { unreachable!("it is a Hello") };
        (newer.version_min, newer.version_max) = (version, version);
        (newer.layout_min, newer.layout_max) = (layout, layout);
        let control = Hostile::knock(&stage);
        send(&control, &Message::Hello(newer), &[]);
        stage.settle();
        let mut buffer = vec![0; frame::FRAME_BYTES_MAX];
        let received = frame::receive(&control, &mut buffer, RecvFlags::DONTWAIT).unwrap();
        let Ok(Message::Reply { value, .. }) = mqttshim_schema::decode(&buffer[..received.length])
        else {
            panic!("not refused")
        };
        let reason = String::from_utf8_lossy(value);
        assert!(reason.contains("upgrade mqttshim-agent"), "{reason}");
    }
    assert_eq!(stage.card().said, [], "the card hears of no session that never was");
}
