//! Bytes: none lost, none changed, none out of order, however they are cut; and the order across sockets.

use std::sync::atomic::{AtomicU64, Ordering};

use mqttshim_schema::SocketId;
use mqttshim_session::{Read, Write};
use rustix::event::PollFlags;

use crate::card::{CARD_WINDOW, Said};
use crate::program::{Connection, PATIENCE, wait};
use crate::world::World;

/// A small generator: the same bytes for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// Writes in pieces of any size; what the card sends back is read in pieces of any size. Returns how often the placeholder
/// was readable for nothing.
fn echo(connection: &Connection, seed: u8, total: usize, readers: usize) -> u64 {
    let bytes = pattern(seed, total);
    let spurious = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut random = Random(u64::from(seed) + 1);
        let from = &bytes;
        scope.spawn(move || {
            let mut at = 0;
            while at < total {
                let length = (1 + random.below(20_000)).min(total - at);
                connection.write_all(&from[at..at + length]);
                at += length;
            }
        });
        for reader in 0..readers {
            let (spurious, taken, sum) = (&spurious, &taken, &sum);
            scope.spawn(move || {
                let mut random = Random(u64::from(seed) * 7 + reader as u64 + 1);
                let mut was_ready = false;
                while taken.load(Ordering::SeqCst) < total as u64 {
                    let mut buffer = vec![0; 1 + random.below(9_000)];
                    match connection.read(&mut buffer) {
                        Read::Bytes(count) => {
                            let at = taken.fetch_add(count as u64, Ordering::SeqCst) as usize;
                            if readers == 1 {
                                assert_eq!(buffer[..count], from[at..at + count], "at {at}");
                            }
                            let bytes = buffer[..count].iter().map(|byte| u64::from(*byte)).sum();
                            sum.fetch_add(bytes, Ordering::SeqCst);
                            was_ready = false;
                        }
                        Read::Empty => {
                            spurious.fetch_add(u64::from(was_ready), Ordering::SeqCst);
                            was_ready = wait_for_more(connection, taken, total);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let all: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(sum.into_inner(), all);
    spurious.into_inner()
}

/// Whether the placeholder became readable before another reader took the last byte.
fn wait_for_more(connection: &Connection, taken: &AtomicU64, total: usize) -> bool {
    let started = std::time::Instant::now();
    while taken.load(Ordering::SeqCst) < total as u64 {
        let slice = std::time::Duration::from_millis(50);
        if wait(connection.fd(), PollFlags::IN, slice).contains(PollFlags::IN) {
            return true;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "stalled at {} of {total}",
            taken.load(Ordering::SeqCst)
        );
    }
    false
}

#[test]
fn bytes_come_back_as_they_were_written_however_they_are_cut() {
    let world = World::new();
    world.card(|card| card.echoes = true);
    let listener = world.program().listen(0).unwrap();
    let connections: Vec<_> = (0..2).map(|_| world.connection(&listener).0).collect();
    let total = 3 * 1024 * 1024;
    std::thread::scope(|scope| {
        for (seed, connection) in connections.iter().enumerate() {
            scope.spawn(move || {
                let spurious = echo(connection, seed as u8, total, 1);
                assert!(spurious < 100, "{spurious} wake-ups for nothing");
            });
        }
    });
    for connection in &connections {
        connection.falls_silent();
    }
}

#[test]
fn two_readers_and_two_writers_of_one_connection_lose_nothing() {
    let world = World::new();
    world.card(|card| card.echoes = true);
    let listener = world.program().listen(0).unwrap();
    let (connection, _) = world.connection(&listener);
    for round in 0..4 {
        // The second writer: another thread with the same bytes in it, one at a time.
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&connection, round, 400_000, 2));
        });
        connection.falls_silent();
    }
    two_writers(&world, &connection);
}

fn two_writers(world: &World, connection: &Connection) {
    let socket = world.card(|card| {
        card.echoes = false;
        card.said.clear();
        SocketId(2)
    });
    std::thread::scope(|scope| {
        for byte in [b'a', b'b'] {
            scope.spawn(move || {
                for _ in 0..300 {
                    connection.write_all(&[byte; 1_000]);
                }
            });
        }
    });
    world.until("all bytes", move |card| card.received(socket).len() == 600_000);
    let received = world.card(move |card| card.received(socket));
    let count = |byte| received.iter().filter(|other| **other == byte).count();
    assert_eq!((count(b'a'), count(b'b')), (300_000, 300_000));
}

#[test]
fn a_channel_that_takes_two_messages_at_a_time_loses_nothing() {
    let world = World::with_queue(2);
    world.card(|card| card.echoes = true);
    let program = world.program();
    let listener = program.listen(0).unwrap();
    let connections: Vec<_> = (0..3).map(|_| world.connection(&listener).0).collect();
    std::thread::scope(|scope| {
        for (seed, connection) in connections.iter().enumerate() {
            scope.spawn(move || echo(connection, seed as u8, 300_000, 1));
        }
    });
    drop(connections);
    world.until("all closed", |card| card.open() == 1);
}

#[test]
fn stamps_grow_in_the_order_of_writes_across_sockets() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let connections: Vec<_> = (0..5).map(|_| world.connection(&listener)).collect();
    let mut random = Random(99);
    let mut written = Vec::new();
    for number in 0..2_000_u32 {
        let (connection, socket) = &connections[random.below(5)];
        connection.write_all(&number.to_ne_bytes());
        written.push((*socket, number));
    }
    world.until("all of it", |card| card.said.iter().filter(|said| is_data(said)).count() == 2_000);
    let seen = world.card(|card| {
        let of = |said: &Said| match said {
            Said::Data { socket, bytes, .. } => {
                let number = u32::from_ne_bytes(bytes.as_slice().try_into().ok()?);
                Some((*socket, number))
            }
            _ => None,
        };
        card.said.iter().filter_map(of).collect::<Vec<_>>()
    });
    assert_eq!(seen, written);
}

fn is_data(said: &Said) -> bool {
    matches!(said, Said::Data { .. })
}

#[test]
fn what_was_read_is_told_with_what_is_written_after_it() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    connection.write_all(b"before");
    world.card(move |card| card.data(socket, b"12345"));
    assert_eq!(connection.read_exactly(5), b"12345");
    connection.write_all(b"after");
    world.until("both", move |card| card.received(socket) == b"beforeafter");
    let reads = world.card(|card| {
        let of = |said: &Said| match said {
            Said::Data { read, .. } => Some(*read),
            _ => None,
        };
        card.said.iter().filter_map(of).collect::<Vec<_>>()
    });
    assert_eq!(reads, [0, 5]);
}

#[test]
fn an_option_that_is_told_keeps_its_place_among_the_data_and_asks_for_no_answer() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, socket) = world.connection(&listener);
    world.card(|card| card.said.clear());
    let asked = mqttshim_session::requests_of_thread().0;
    connection.write_all(b"before");
    assert!(connection.session.tell_option(connection.slot, 6, 3, [1, 0, 0, 0]));
    connection.write_all(b"after");
    assert_eq!(mqttshim_session::requests_of_thread().0, asked);
    world.until("all of it", |card| card.said.len() == 3);
    let said = world.card(|card| card.said.clone());
    assert!(matches!(&said[0], Said::Data { bytes, .. } if bytes == b"before"));
    assert_eq!(said[1], Said::Option { socket });
    assert!(matches!(&said[2], Said::Data { bytes, .. } if bytes == b"after"));
    assert!(!connection.session.tell_option(listener.slot, 6, 3, [1, 0, 0, 0]), "no connection");
}

#[test]
fn a_refused_write_is_announced_before_anything_written_later() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (blocked, blocked_socket) = world.connection(&listener);
    let (other, other_socket) = world.connection(&listener);
    world.card(|card| {
        card.grants = false;
        card.said.clear();
    });
    let window = CARD_WINDOW as usize;
    let taken = blocked.write(&vec![0; window + 1]);
    assert_eq!(taken, Write::Bytes(window), "cut short by one byte");
    other.write_all(b"later");
    world.until("the later bytes", move |card| card.received(other_socket) == b"later");
    let said = world.card(|card| card.said.clone());
    let at = |wanted: &dyn Fn(&Said) -> bool| said.iter().position(wanted).expect("it was said");
    let announced =
        at(&|said| matches!(said, Said::Blocked { socket, .. } if *socket == blocked_socket));
    let later = at(&|said| matches!(said, Said::Data { socket, .. } if *socket == other_socket));
    assert!(announced < later);
}

#[test]
fn a_slow_reader_stops_its_own_client_and_no_other() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (slow, slow_socket) = world.connection(&listener);
    let (quick, quick_socket) = world.connection(&listener);
    let bytes = pattern(3, 500_000);
    let sent = bytes.clone();
    world.card(move |card| {
        card.data(slow_socket, &sent);
        card.data(quick_socket, &sent);
    });
    assert_eq!(quick.read_exactly(bytes.len()), bytes);
    // One byte at a time, as mosquitto reads, then all of it.
    for byte in &bytes[..1_000] {
        assert_eq!(slow.read_exactly(1), [*byte]);
    }
    assert_eq!(slow.read_exactly(bytes.len() - 1_000), bytes[1_000..]);
}
