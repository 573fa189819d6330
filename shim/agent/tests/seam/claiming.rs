//! Programs that hold a socket another one opened.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use mqttshim_session::{Read, Session, SlotId};
use rustix::event::PollFlags;

use crate::program::{Connection, PATIENCE, placeholder, wait};
use crate::world::World;

fn inode(file: impl AsFd) -> u32 {
    rustix::fs::fstat(file).expect("an open file").st_ino as u32
}

fn claim(world: &World, file: impl AsFd) -> Option<Session> {
    Session::claim(&world.path, 3, file.as_fd()).expect("an agent that answers")
}

/// What another program has of a connection: a copy of its placeholder, and its session.
fn heir(world: &World, connection: &Connection) -> (Arc<Session>, SlotId, OwnedFd) {
    connection.session.set_file(connection.slot, inode(connection.fd()));
    let copy = rustix::io::dup(connection.fd()).expect("a copy");
    let session = claim(world, &copy).expect("a socket of this agent");
    let slot = session.find_file(inode(&copy)).expect("a socket of this session");
    (Arc::new(session), slot, copy)
}

#[test]
fn the_holder_of_a_placeholder_gets_its_session_which_lives_as_long_as_one_of_them() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    let (session, slot, copy) = heir(&world, &connection);
    assert_eq!(slot, connection.slot);
    assert!(session.bell().is_none(), "the ready list has its taker");
    drop((connection, listener));
    let held = Connection { session, slot, fd: Some(copy) };
    world.card(move |card| card.data(socket, b"hello"));
    held.becomes(PollFlags::IN | PollFlags::OUT);
    assert_eq!(held.read_exactly(5), b"hello");
    drop(held);
    world.until("the session ended", |card| card.open() == 0);
}

#[test]
fn a_claimed_connection_leaves_the_ready_list_and_never_comes_back() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    assert!(connection.session.list(connection.slot));
    assert_eq!(connection.read(&mut [0; 9]), Read::Empty);
    world.card(move |card| card.data(socket, b"listed"));
    let (session, slot, copy) = heir(&world, &connection);
    let readable = wait(&copy, PollFlags::IN, std::time::Duration::from_millis(50));
    assert!(readable.is_empty(), "announced on the list alone");
    assert!(session.keep_on_wire(slot));
    assert!(wait(&copy, PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    assert!(!connection.session.list(connection.slot) && !session.is_listed(slot));
    assert_eq!(connection.read_exactly(6), b"listed");
    assert!(!session.keep_on_wire(slot) && !session.unlist(slot));
    assert!(!connection.session.list(connection.slot));
    world.card(move |card| card.data(socket, b"more"));
    assert!(wait(&copy, PollFlags::IN, PATIENCE).contains(PollFlags::IN));
}

#[test]
fn a_file_that_is_no_placeholder_opens_nothing() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, _) = world.connection(&listener);
    let (_end, stranger) = placeholder(1);
    assert!(claim(&world, &stranger).is_none());
    let file = tempfile::tempfile().unwrap();
    // A program may say anything; only a socket counts.
    connection.session.set_file(connection.slot, inode(&file));
    assert!(claim(&world, &file).is_none());
    // Words about another socket are believed of one's own programs, and lead to one's own memory.
    connection.session.set_file(connection.slot, inode(&stranger));
    assert!(claim(&world, &stranger).is_some());
}
