//! How connections and programs end: the card hears of it once, after everything that was written.

use std::process::{Command, Stdio};

use mqttshim_schema::{How, Notice, SocketId};
use mqttshim_session::Read;
use rustix::event::PollFlags;
use rustix::process::Signal;

use crate::card::{Card, Said};
use crate::program::{Connection, PATIENCE, Program, eventually, wait};
use crate::world::World;

fn close_of(said: &[Said], socket: SocketId) -> Option<bool> {
    said.iter().find_map(|said| match said {
        Said::Close { socket: of, unread } if *of == socket => Some(*unread),
        _ => None,
    })
}

#[test]
fn the_last_close_is_seen_after_the_last_byte() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    for length in [0, 1, 50_000] {
        let (mut connection, socket) = world.connection(&listener);
        connection.write_all(&vec![7; length]);
        connection.close();
        world.until("closed", move |card| card.is_closed(socket));
        let (received, unread) =
            world.card(move |card| (card.received(socket), close_of(&card.said, socket)));
        assert_eq!((received.len(), unread), (length, Some(false)));
    }
}

#[test]
fn unread_bytes_at_the_end_are_told() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (mut connection, socket) = world.connection(&listener);
    world.card(move |card| card.data(socket, b"read half"));
    assert_eq!(connection.read_exactly(4), b"read");
    connection.close();
    world.until("closed", move |card| close_of(&card.said, socket) == Some(true));
}

#[test]
fn a_dup_keeps_a_connection_open() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (mut connection, socket) = world.connection(&listener);
    let copy = rustix::io::dup(connection.fd()).unwrap();
    connection.session.retain(connection.slot);
    connection.close();
    world.card(move |card| card.data(socket, b"still here"));
    assert!(wait(&copy, PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    assert!(!world.card(move |card| card.is_closed(socket)));
    drop(copy);
    world.until("closed", move |card| close_of(&card.said, socket) == Some(true));
}

#[test]
fn a_copy_in_another_process_keeps_a_connection_open_until_it_is_killed() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (mut connection, socket) = world.connection(&listener);
    let copy = rustix::io::dup(connection.fd()).unwrap();
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(copy)).spawn().unwrap();
    connection.close();
    // As long as the agent needs to notice, were there anything to notice.
    drop(world.connection(&listener));
    world.until("the other one", |card| card.open() == 2);
    assert!(!world.card(move |card| card.is_closed(socket)));
    child.kill().unwrap();
    child.wait().unwrap();
    world.until("closed", move |card| close_of(&card.said, socket) == Some(false));
}

#[test]
fn a_reset_connection_frees_its_slot_when_the_program_closes_it() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    // Four times as many as a session has slots.
    for round in 0..1_000 {
        let socket = world.card(Card::accept);
        let connection = listener.accept();
        match round % 4 {
            0 => {
                connection.becomes(PollFlags::OUT);
                world.card(move |card| card.reset(socket));
            }
            1 => {
                world.card(move |card| card.reset(socket));
                let hung_up = wait(connection.fd(), PollFlags::empty(), PATIENCE);
                assert!(hung_up.contains(PollFlags::HUP));
            }
            2 => world.card(move |card| card.eof(socket)),
            _ => connection.session.shutdown(connection.slot, How::Both).unwrap(),
        }
        drop(connection);
        world.until("closed", move |card| card.is_closed(socket));
    }
}

#[test]
fn slots_are_free_again_however_wrong_the_program_counts() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    for round in 0..300 {
        let (connection, socket) = world.connection(&listener);
        // As for a child that was forked and ran another program.
        connection.session.retain(connection.slot);
        if round % 2 == 0 {
            world.card(move |card| card.reset(socket));
        } else {
            world.card(move |card| card.eof(socket));
            connection.session.shutdown(connection.slot, How::Both).unwrap();
        }
        let hung_up = wait(connection.fd(), PollFlags::empty(), PATIENCE);
        assert!(hung_up.contains(PollFlags::HUP));
        drop(connection);
        world.until("closed", move |card| card.is_closed(socket));
    }
}

#[test]
fn a_connection_that_hung_up_is_closed_with_its_last_copy_in_another_process() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (mut connection, socket) = world.connection(&listener);
    world.card(move |card| card.eof(socket));
    connection.session.shutdown(connection.slot, How::Both).unwrap();
    let hung_up = wait(connection.fd(), PollFlags::empty(), PATIENCE);
    assert_eq!(hung_up, PollFlags::HUP);
    let copy = rustix::io::dup(connection.fd()).unwrap();
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(copy)).spawn().unwrap();
    connection.close();
    drop(world.connection(&listener));
    world.until("the other one", |card| card.open() == 2);
    assert!(!world.card(move |card| card.is_closed(socket)));
    child.kill().unwrap();
    child.wait().unwrap();
    world.until("closed", move |card| close_of(&card.said, socket) == Some(false));
}

#[test]
fn a_connection_reset_before_it_was_accepted_frees_its_slot_too() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    for _ in 0..400 {
        world.card(|card| {
            let socket = card.accept();
            card.reset(socket);
        });
        let mut connection = listener.accept();
        connection.close();
    }
    drop(world.connection(&listener));
}

/// Runs [`child`] in a process of its own.
fn spawn(world: &World, mode: &str) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "endings::child", "--nocapture"])
        .env("SEAM_PATH", &world.path)
        .env("SEAM_MODE", mode)
        .stdout(Stdio::null())
        .spawn()
        .expect("a process")
}

/// What the other process does; nothing when run as a test.
#[test]
fn child() {
    let Some(path) = std::env::var_os("SEAM_PATH") else { return };
    let program = Program::open(path.as_ref());
    let listener = program.listen(1883).unwrap();
    let connection: Connection = listener.accept();
    assert_eq!(connection.read_exactly(5), b"hello");
    connection.write_all(&vec![b'x'; 60_000]);
    match std::env::var("SEAM_MODE").as_deref() {
        Ok("unread") => {
            let unread = || connection.session.readable_bytes(connection.slot);
            eventually("bytes to leave unread", || unread() > 0);
        }
        _ => assert_eq!(connection.read(&mut [0; 9]), Read::Empty),
    }
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, Signal::KILL).unwrap();
}

#[test]
fn what_a_killed_program_had_written_is_delivered_and_its_port_is_free() {
    for (mode, unread) in [("read", false), ("unread", true)] {
        let world = World::new();
        let mut child = spawn(&world, mode);
        world.until("listening", |card| {
            card.said.iter().any(|said| matches!(said, Said::Listen { .. }))
        });
        let socket = world.card(|card| {
            card.grants = false;
            let socket = card.accept();
            card.data(socket, b"hello");
            socket
        });
        if unread {
            world.until("its words", move |card| !card.received(socket).is_empty());
            world.card(move |card| card.data(socket, b"unread"));
        }
        child.wait().unwrap();
        drop(world.program().listen(1883).expect("the port is free"));
        let (received, close, ended) = world.card(move |card| {
            let ended =
                |said: &Said| matches!(said, Said::Notice { what: Notice::SessionEnded, .. });
            let close = close_of(&card.said, socket);
            (card.received(socket).len(), close, card.said.iter().any(ended))
        });
        assert_eq!((received, close, ended), (60_000, Some(unread), true));
    }
}

#[test]
fn shutdowns_are_told_in_order_with_the_data() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    world.card(|card| card.said.clear());
    connection.write_all(b"last");
    connection.session.shutdown(connection.slot, How::Write).unwrap();
    world.until("the shutdown", |card| card.said.len() == 2);
    let said = world.card(|card| card.said.clone());
    assert!(matches!(&said[0], Said::Data { bytes, .. } if bytes == b"last"));
    assert_eq!(said[1], Said::Shutdown { socket, how: How::Write });
    world.card(move |card| card.data(socket, b"answer"));
    assert_eq!(connection.read_exactly(6), b"answer", "only one half is shut");
}

#[test]
fn writes_that_race_with_a_shutdown_never_land_behind_it() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    for _ in 0..200 {
        let (connection, socket) = world.connection(&listener);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while matches!(connection.write(b"x"), mqttshim_session::Write::Bytes(_)) {}
            });
            scope.spawn(|| connection.session.shutdown(connection.slot, How::Write).unwrap());
        });
        drop(connection);
        world.until("closed", move |card| card.is_closed(socket));
        let said = world.card(|card| std::mem::take(&mut card.said));
        let end = said.iter().position(|said| matches!(said, Said::Shutdown { .. })).unwrap();
        assert!(!said[end..].iter().any(|said| matches!(said, Said::Data { .. })));
    }
}
