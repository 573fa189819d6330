//! Listeners: their placeholders outlive agents, their queues do not outlive them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mqttshim_session::{Accept, Read};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::attack::Hostile;
use crate::card::{Card, Said};
use crate::program::{Connection, PATIENCE, Program, placeholder, ready, wait};
use crate::world::World;

#[test]
fn a_listener_is_readable_while_connections_wait_in_its_queue() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    assert!(!ready(listener.fd()).contains(PollFlags::IN));
    for _ in 0..3 {
        world.card(Card::accept);
    }
    let mut accepted = Vec::new();
    for _ in 0..3 {
        assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN));
        accepted.push(listener.accept());
    }
    assert!(listener.take().is_none());
    assert!(!ready(listener.fd()).contains(PollFlags::IN));
    let peer = listener.session.peer(accepted[0].slot);
    assert_eq!(peer, Some(([192, 0, 2, 1], 50_000).into()), "the client's own address");
}

#[test]
fn a_placeholder_outlives_its_agent_and_is_woken_by_the_next() {
    let mut world = World::new();
    let program = world.program();
    let listener = program.listen(1883).unwrap();
    let (connection, _) = world.connection(&listener);
    world.restart();
    connection.becomes(
        PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR,
    );
    assert_eq!(connection.read(&mut [0; 9]), Read::Failed(Errno::CONNRESET));
    assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN), "not woken");
    assert_eq!(program.session.accept(listener.slot, listener.fd()), Accept::Lost);
    assert!(ready(listener.fd()).contains(PollFlags::IN), "it is the next session's to take");

    let again = Program::open(&world.path);
    let address = ([127, 0, 0, 1], 1883).into();
    let (slot, _) = again.session.bind(address, &[]).unwrap();
    let placeholder = (listener.name.as_str(), listener.fd());
    let listening = again.session.listen(slot, 100, Some(placeholder), &[]).unwrap();
    assert!(listening.placeholder.is_none() && listening.name == listener.name);
    assert_eq!(again.session.accept(slot, listener.fd()), Accept::Empty);
    assert!(!ready(listener.fd()).contains(PollFlags::IN), "the wake-up was taken");
    world.card(Card::accept);
    assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    let accepted = again.session.accept(slot, listener.fd());
    assert!(matches!(accepted, Accept::Connection(_)), "{accepted:?}");
}

#[test]
fn only_a_placeholder_that_is_held_may_be_named() {
    let world = World::new();
    let program = world.program();
    let (own, others) = (program.listen(0).unwrap(), world.program().listen(0).unwrap());
    for name in ["listener-1-1", "../listener-1-1", "session.sock", &others.name] {
        let (slot, _) = program.session.bind(([127, 0, 0, 1], 0).into(), &[]).unwrap();
        let refused = program.session.listen(slot, 1, Some((name, own.fd())), &[]);
        assert_eq!(refused.err(), Some(Errno::INVAL), "{name}");
        assert_eq!(program.session.find_listener(name, own.fd()), Err(Errno::INVAL), "{name}");
    }
}

#[test]
fn a_closed_listeners_port_can_be_bound_again_at_once() {
    let world = World::new();
    let program = world.program();
    for _ in 0..200 {
        // The Close travels in the ring, the bind on the control socket: it must not overtake.
        let mut listener = program.listen(1883).unwrap();
        listener.close();
    }
    world.until("all are closed", |card| card.open() == 0);
}

#[test]
fn a_listener_whose_close_nobody_said_is_closed_within_two_seconds() {
    let world = World::new();
    let program = world.program();
    let mut listener = program.listen(1883).unwrap();
    let copy = rustix::io::dup(listener.fd()).unwrap();
    listener.close();
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(world.card(|card| card.open()), 1, "a copy is still open");
    let started = Instant::now();
    drop(copy);
    world.until("closed", |card| card.open() == 0);
    assert!(started.elapsed() < Duration::from_secs(2));
    let left = std::fs::read_dir(world.folder.path()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["session.sock"], "its name is gone too");
}

#[test]
fn what_waits_in_a_queue_is_reset_with_its_listener_and_what_was_taken_lives() {
    let world = World::new();
    let program = world.program();
    let mut listener = program.listen(0).unwrap();
    let taken = world.card(Card::accept);
    let waiting = world.card(Card::accept);
    assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    let slot = listener.take().expect("two wait");
    listener.close();
    world.until("the one in the queue is reset", move |card| {
        card.said.contains(&Said::Close { socket: waiting, unread: true })
    });
    assert!(!world.card(move |card| card.is_closed(taken)));
    let connection = Connection::attach(&program.session, slot);
    world.card(move |card| card.data(taken, b"alive"));
    assert_eq!(connection.read_exactly(5), b"alive");
}

#[test]
fn a_client_too_many_is_reset_and_what_it_said_reaches_nobody() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    // 256 slots, one of them the listener's.
    let mut connections: Vec<_> = (0..255).map(|_| world.connection(&listener)).collect();
    let refused = world.card(|card| {
        let refused = card.accept();
        card.data(refused, b"nobody reads this");
        card.eof(refused);
        refused
    });
    world.until("reset", move |card| {
        card.said.contains(&Said::Close { socket: refused, unread: true })
    });
    assert!(listener.take().is_none());
    let (freed, socket) = connections.pop().expect("many");
    drop(freed);
    world.until("closed", move |card| card.is_closed(socket));
    let (next, socket) = world.connection(&listener);
    world.card(move |card| card.data(socket, b"hello"));
    assert_eq!(next.read_exactly(5), b"hello");
}

#[test]
fn listening_again_only_changes_the_backlog() {
    let world = World::new();
    let program = world.program();
    let listener = program.listen(0).unwrap();
    let again = program.session.listen(listener.slot, 5, None, &[]).unwrap();
    assert!(again.placeholder.is_none());
    assert_eq!(again.name, listener.name);
    drop(world.connection(&listener));
}

#[test]
fn a_port_in_use_is_said_and_leaves_nothing_behind() {
    let world = World::new();
    let program = world.program();
    let _listener = program.listen(1883).unwrap();
    for _ in 0..300 {
        assert_eq!(program.listen(1883).err(), Some(Errno::ADDRINUSE));
    }
}

#[test]
fn a_bind_waits_for_the_end_of_the_session_that_holds_the_port() {
    let world = World::new();
    for _ in 0..20 {
        let program = world.program();
        let mut listener = program.listen(1883).unwrap();
        // As when a process is killed: nothing is said, all descriptors go.
        listener.fd = None;
        drop(listener);
        drop(program);
        drop(world.program().listen(1883).unwrap());
    }
}

#[test]
fn a_listener_of_a_killed_process_is_not_in_the_way_while_another_shares_its_session() {
    let world = World::new();
    let program = world.program();
    for _ in 0..20 {
        let mut listener = program.listen(1883).unwrap();
        // As when it is killed: nothing is said. The session lives on in the other process.
        listener.fd = None;
    }
    world.until("one is left", |card| card.open() == 1);
}

#[test]
fn a_connection_whose_process_died_between_accept_and_hand_over_is_reset_and_its_slot_freed() {
    let world = World::new();
    let program = world.program();
    let listener = program.listen(0).unwrap();
    let (connection, _) = world.connection(&listener);
    let socket = world.card(Card::accept);
    assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    let slot = listener.take().expect("one waits");
    world.on_stage(|stage| stage.look(3));
    assert!(!world.card(move |card| card.is_closed(socket)), "its process may only be slow");
    world.on_stage(|stage| stage.look(7));
    world.until("reset", move |card| card.said.contains(&Said::Close { socket, unread: true }));
    // One that was only stopped, for very long, is told so.
    assert_eq!(program.session.attach(slot, placeholder(1).1), Err(Errno::CONNRESET));
    connection.becomes(PollFlags::OUT);
}

#[test]
fn the_name_of_a_listener_that_was_closed_before_it_found_a_new_session_goes() {
    let mut world = World::new();
    let mut listener = world.program().listen(1883).unwrap();
    world.restart();
    assert!(wait(listener.fd(), PollFlags::IN, PATIENCE).contains(PollFlags::IN), "woken");
    listener.fd = None;
    world.on_stage(|stage| stage.look(3));
    let left = std::fs::read_dir(world.folder.path()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["session.sock"]);
}

#[test]
fn the_listener_of_a_session_that_was_ended_for_a_violation_is_woken_for_another() {
    let world = World::new();
    let (placeholder, name) = world.on_stage(|stage| {
        stage.settle();
        let mut hostile = Hostile::open(stage);
        let listening = hostile.listen(stage);
        hostile.frame(b"no message", &[]);
        stage.settle();
        listening
    });
    world.on_stage(|stage| stage.look(3));
    assert!(wait(&placeholder, PollFlags::IN, PATIENCE).contains(PollFlags::IN), "not woken");
    let again = Program::open(&world.path);
    let (slot, _) = again.session.bind(([127, 0, 0, 1], 0).into(), &[]).unwrap();
    let named = Some((name.as_str(), placeholder.as_fd()));
    assert_eq!(again.session.listen(slot, 100, named, &[]).unwrap().name, name);
}
