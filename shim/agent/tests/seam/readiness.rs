//! What the kernel says of a placeholder in every state a connection can be in: poll(2), as for TCP.

use mqttshim_schema::How;
use mqttshim_session::{Read, Write};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;

use crate::card::{CARD_WINDOW, Card};
use crate::program::{Connection, PATIENCE, eventually, wait};
use crate::world::World;

const OUT: PollFlags = PollFlags::OUT;
const IN_OUT: PollFlags = PollFlags::IN.union(PollFlags::OUT);
const ENDED: PollFlags = IN_OUT.union(PollFlags::RDHUP);
const OVER: PollFlags = ENDED.union(PollFlags::HUP);
const RESET: PollFlags = OVER.union(PollFlags::ERR);

#[test]
fn a_placeholder_shows_data_its_absence_and_the_end() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    connection.becomes(OUT);
    world.card(move |card| card.data(socket, b"hello"));
    connection.becomes(IN_OUT);
    assert_eq!(connection.read_exactly(2), b"he");
    assert_eq!(connection.ready(), IN_OUT, "three bytes are left");
    assert_eq!(connection.read_exactly(3), b"llo");
    assert_eq!(connection.ready(), OUT);
    assert_eq!(connection.read(&mut [0; 9]), Read::Empty);
    world.card(move |card| card.eof(socket));
    connection.becomes(ENDED);
    assert_eq!(connection.read(&mut [0; 9]), Read::Eof);
    assert_eq!(connection.read(&mut [0; 9]), Read::Eof);
    assert_eq!(connection.write(b"bye"), Write::Bytes(3));
    world.until("the last words", move |card| card.received(socket) == b"bye");
}

#[test]
fn who_reads_everything_without_being_told_leaves_nothing_to_be_told_of() {
    let world = World::new();
    world.card(|card| card.echoes = true);
    let listener = world.program().listen(0).unwrap();
    let (connection, _) = world.connection(&listener);
    let mut late = 0;
    for _ in 0..5_000 {
        connection.write_all(b"?");
        // The bytes are in memory a moment before the wake-up for them is on the placeholder.
        while connection.read(&mut [0; 9]) == Read::Empty {}
        late += u32::from(connection.ready() != OUT);
    }
    assert_eq!(late, 0, "times a drained connection was readable");
}

#[test]
fn a_reset_connection_says_so_once_and_then_is_at_its_end() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    world.card(move |card| card.data(socket, b"kept"));
    connection.becomes(IN_OUT);
    world.card(move |card| card.reset(socket));
    connection.becomes(RESET);
    // As Linux has it: what came before the reset is still read.
    assert_eq!(connection.read(&mut [0; 9]), Read::Bytes(4));
    assert_eq!(connection.read(&mut [0; 9]), Read::Failed(Errno::CONNRESET));
    assert_eq!(connection.ready(), OVER);
    assert_eq!(connection.read(&mut [0; 9]), Read::Eof);
    assert_eq!(connection.write(b"x"), Write::Failed(Errno::PIPE));
}

#[test]
fn a_blocked_connection_is_writable_again_when_there_is_room() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    world.card(|card| card.grants = false);
    let window = CARD_WINDOW as usize;
    assert_eq!(connection.write(&vec![1; window]), Write::Bytes(window));
    assert_eq!(connection.ready(), OUT, "nobody was told that there is no room");
    assert_eq!(connection.write(b"x"), Write::Full);
    assert_eq!(connection.ready(), PollFlags::empty());
    world.card(move |card| card.data(socket, b"!"));
    connection.becomes(PollFlags::IN);
    assert_eq!(connection.read_exactly(1), b"!");
    world.card(move |card| card.grant(socket, CARD_WINDOW / 2));
    connection.becomes(OUT);
    assert_eq!(connection.write(&vec![2; window]), Write::Bytes(window / 2), "cut short");
    assert_eq!(connection.ready(), PollFlags::empty());
    world.card(move |card| card.grant(socket, CARD_WINDOW));
    connection.becomes(OUT);
}

#[test]
fn both_ends_shut_is_a_hang_up_without_an_error() {
    for client_first in [true, false] {
        let world = World::new();
        let listener = world.program().listen(0).unwrap();
        let (connection, socket) = world.connection(&listener);
        if client_first {
            world.card(move |card| card.eof(socket));
            connection.becomes(ENDED);
        }
        connection.session.shutdown(connection.slot, How::Write).unwrap();
        assert_eq!(connection.write(b"x"), Write::Failed(Errno::PIPE));
        if !client_first {
            world.card(move |card| card.eof(socket));
        }
        connection.becomes(OVER);
        assert_eq!(connection.read(&mut [0; 9]), Read::Eof);
        drop(connection);
        world.until("closed", move |card| card.is_closed(socket));
    }
}

#[test]
fn a_connect_shows_its_outcome() {
    let world = World::new();
    let program = world.program();
    let connection = program.connect();
    assert_eq!(connection.ready(), PollFlags::empty());
    assert_eq!(connection.write(b"early"), Write::Full);
    let socket = world.card(|card| match card.said.last() {
        Some(crate::card::Said::Connect { socket }) => *socket,
        other => panic!("{other:?}"),
    });
    world.card(move |card| card.connected(socket, 0));
    connection.becomes(OUT);
    assert_eq!(connection.write(b"now"), Write::Bytes(3));
    world.until("the words", move |card| card.received(socket) == b"now");

    let refused = program.connect();
    world.card(move |card| card.connected(mqttshim_schema::SocketId(socket.0 + 2), 111));
    refused.becomes(RESET);
    let error = refused.session.take_error(refused.slot, refused.fd());
    assert_eq!(error, Some(Errno::CONNREFUSED));
}

/// Takes a connection off the queue, has the card do something, and only then hands the wire over.
#[track_caller]
fn late_wire(
    then: impl FnOnce(&mut Card, mqttshim_schema::SocketId) + Send + 'static,
) -> (World, Connection) {
    let world = World::new();
    let listener = world.program().listen(0).expect("a port");
    let socket = world.card(Card::accept);
    let ready = wait(listener.fd(), PollFlags::IN, PATIENCE);
    assert_eq!(ready, PollFlags::IN);
    let slot = listener.take().expect("it is readable");
    world.card(move |card| then(card, socket));
    world.card(|_| ());
    let connection = Connection::attach(&listener.session, slot);
    (world, connection)
}

#[test]
fn a_wire_that_comes_late_shows_what_happened_before_it() {
    let (_world, connection) = late_wire(|card, socket| card.data(socket, b"hi"));
    connection.becomes(IN_OUT);
    assert_eq!(connection.read_exactly(2), b"hi");
    assert_eq!(connection.ready(), OUT);

    let (_world, connection) = late_wire(|card, socket| card.eof(socket));
    connection.becomes(ENDED);
    assert_eq!(connection.read(&mut [0; 9]), Read::Eof);

    let (_world, connection) = late_wire(|card, socket| card.reset(socket));
    connection.becomes(RESET);
    assert_eq!(connection.read(&mut [0; 9]), Read::Failed(Errno::CONNRESET));
}

#[test]
fn bytes_owed_to_a_late_wire_are_counted() {
    let world = World::new();
    let program = world.program();
    let listener = program.listen(0).unwrap();
    let socket = world.card(Card::accept);
    let ready = wait(listener.fd(), PollFlags::IN, PATIENCE);
    assert_eq!(ready, PollFlags::IN);
    let slot = listener.take().expect("it is readable");
    // Read, as a program may, before the agent has seen the wire.
    let (fd, wire) = crate::program::placeholder(1);
    let connection =
        Connection { session: std::sync::Arc::clone(&program.session), slot, fd: Some(fd) };
    for round in 0..5_u8 {
        world.card(move |card| card.data(socket, &[round]));
        eventually("a byte", || connection.read(&mut [0; 9]) == Read::Bytes(1));
    }
    program.session.attach(slot, wire).unwrap();
    // Each byte was announced, so one read pays for all, and nothing is owed that a later byte would have to pay.
    eventually("the debt is paid", || {
        assert_eq!(connection.read(&mut [0; 9]), Read::Empty);
        connection.ready() == OUT && world.card(|_| true)
    });
    for round in 0..100_u8 {
        world.card(move |card| card.data(socket, &[round]));
        connection.becomes(IN_OUT);
        assert_eq!(connection.read_exactly(1), [round]);
        assert_eq!(connection.ready(), OUT);
    }
}

#[test]
fn an_edge_triggered_watcher_gets_an_edge_for_every_arrival() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    connection.becomes(OUT);
    connection.session.mark_edge(connection.slot);
    let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(&set, connection.fd(), EventData::new_u64(1), flags).unwrap();
    let edges = |time| {
        let mut events = Vec::with_capacity(4);
        let time = Timespec { tv_sec: time, tv_nsec: 0 };
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&time)).unwrap()
    };
    assert_eq!(edges(0), 0);
    for round in 0..20_u8 {
        world.card(move |card| card.data(socket, &[round]));
        assert_eq!(edges(10), 1, "arrival {round}, nothing read so far");
    }
    assert_eq!(connection.read_exactly(20), (0..20).collect::<Vec<u8>>());
    // The last of them may be seen before it is counted.
    eventually("the extra bytes are paid", || {
        connection.read(&mut [0; 9]) == Read::Empty && connection.ready() == OUT
    });
    world.card(move |card| card.data(socket, b"x"));
    assert_eq!(edges(10), 1);
}
