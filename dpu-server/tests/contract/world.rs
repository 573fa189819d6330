//! A stack, and clients and servers beyond it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dpu_server::stack::{Batch, Ends, Event, Key, Received, Sent, Stack};
use mqttshim_schema::SocketOption;

/// The listener of most cases.
pub(crate) const LISTENER: Key = Key(0);
/// The connection of most cases.
pub(crate) const SERVED: Key = Key(1);
/// What an option that is on is set to.
pub(crate) const ONE: [u8; 4] = 1i32.to_ne_bytes();
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long one wait of the stack's lasts.
const TURN: Duration = Duration::from_millis(2);

/// What a client sees of its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    /// It goes on.
    Open,
    /// The card sent its FIN.
    Fin,
    /// The card reset it.
    Reset,
}

/// A stack under test, and whoever it talks to. Nothing in it waits: between two looks the stack has its turn ([`until`]).
pub(crate) trait World {
    /// The stack.
    type Stack: Stack;

    /// The stack.
    fn stack(&mut self) -> &mut Self::Stack;

    /// The card's address of IPv4, for listeners and clients.
    fn card(&self) -> IpAddr;

    /// Where clients and servers are.
    fn host(&self) -> IpAddr;

    /// A client begins to connect.
    fn dial(&mut self, to: SocketAddr) -> usize;

    /// The client's own end once it is connected, or why it is not; `None` while it is under way.
    fn dialled(&mut self, client: usize) -> Option<Result<SocketAddr, ErrorKind>>;

    /// A client writes; returns how many bytes its connection took.
    fn say(&mut self, client: usize, bytes: &[u8]) -> usize;

    /// A client writes to a connection it knows to have ended; whether it is told that nobody takes that.
    fn is_refused(&mut self, client: usize, bytes: &[u8]) -> bool;

    /// A client reads all there is now onto the end of `bytes`.
    fn hear(&mut self, client: usize, bytes: &mut Vec<u8>) -> Heard;

    /// A client sends its FIN, and may go on reading.
    fn fin(&mut self, client: usize);

    /// A client resets its connection.
    fn reset(&mut self, client: usize);

    /// A client closes its socket: nobody reads any more.
    fn leave(&mut self, client: usize);

    /// Somebody listens for connections of the card's.
    fn serve(&mut self) -> SocketAddr;

    /// The same, at an address of IPv6.
    fn serve6(&mut self) -> SocketAddr;

    /// Somebody whose backlog is full: a SYN is not answered.
    fn serve_deaf(&mut self) -> SocketAddr;

    /// A connection of the card's, as a client, once one came.
    fn served(&mut self) -> Option<usize>;
}

/// Gives the stack its turns until `look` finds something in its world, or in what changed.
///
/// # Panics
/// After [`PATIENCE`], naming `what` was awaited.
#[track_caller]
pub(crate) fn until<W: World, T>(
    world: &mut W,
    what: &str,
    mut look: impl FnMut(&mut W, &[Event]) -> Option<T>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    loop {
        world.stack().wait(Some(TURN), &mut events).expect("the stack waits");
        if let Some(found) = look(world, &events) {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        events.clear();
    }
}

/// Gives the stack its turns for a while, in which `never` must not be.
#[track_caller]
pub(crate) fn meanwhile<W: World>(
    world: &mut W,
    time: Duration,
    mut never: impl FnMut(&mut W, &[Event]) -> bool,
) {
    let end = Instant::now() + time;
    let mut events = Vec::new();
    while Instant::now() < end {
        world.stack().wait(Some(TURN), &mut events).expect("the stack waits");
        assert!(!never(world, &events), "it happened: {events:?}");
        events.clear();
    }
}

/// An option that is on.
pub(crate) fn on(level: i32, name: i32) -> SocketOption<'static> {
    SocketOption { level, name, value: &ONE }
}

/// Binds and listens at a free port.
#[track_caller]
pub(crate) fn listen<W: World>(world: &mut W, options: &[SocketOption<'_>]) -> SocketAddr {
    let any = SocketAddr::new(world.card(), 0);
    let bound = world.stack().bind(LISTENER, 0, any, options).expect("a port is free");
    assert_eq!(world.stack().listen(LISTENER, 1024, &[]), Ok(bound));
    bound
}

/// A client that is connected, and its connection as `key`.
#[track_caller]
pub(crate) fn connect<W: World>(world: &mut W, to: SocketAddr, key: Key) -> usize {
    let client = world.dial(to);
    let own = until(world, "a client is connected", |world, _| world.dialled(client));
    let ends = accept(world, key);
    assert_eq!(ends.peer, own.expect("somebody listens"));
    client
}

/// The next connection, as `key`.
#[track_caller]
pub(crate) fn accept<W: World>(world: &mut W, key: Key) -> Ends {
    until(world, "a connection is accepted", |world, _| world.stack().accept(LISTENER, key).ok())
}

/// A listener, a client and its connection, [`SERVED`].
#[track_caller]
pub(crate) fn pair<W: World>(world: &mut W) -> usize {
    let address = listen(world, &[]);
    connect(world, address, SERVED)
}

/// What the next read of a connection that is not empty comes to.
#[track_caller]
pub(crate) fn received<W: World>(world: &mut W, key: Key) -> Received {
    until(world, "there is something to receive", |world, _| {
        Some(world.stack().recv(key, &mut [0; 4096])).filter(|it| *it != Received::Empty)
    })
}

/// Offers `parts` in one batch.
pub(crate) fn send<W: World>(world: &mut W, parts: &[(Key, &[&[u8]])]) -> Vec<Sent> {
    let mut batch = Batch::default();
    for (key, part) in parts {
        batch.push(*key, part.iter().copied());
    }
    let mut sent = Vec::new();
    world.stack().send(&batch, &mut sent);
    sent
}

/// What a client hears until `count` bytes came, or the end.
#[track_caller]
pub(crate) fn heard<W: World>(world: &mut W, client: usize, count: usize) -> (Vec<u8>, Heard) {
    let mut bytes = Vec::new();
    let ending = until(world, "a client hears", |world, _| {
        let state = world.hear(client, &mut bytes);
        (state != Heard::Open || bytes.len() >= count).then_some(state)
    });
    (bytes, ending)
}

/// How a client's connection ends.
#[track_caller]
pub(crate) fn ending<W: World>(world: &mut W, client: usize) -> (Vec<u8>, Heard) {
    heard(world, client, usize::MAX)
}

/// Bytes that show it if some are lost, repeated or swapped.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A client says all of `bytes`, while the card reads them as `key`.
#[track_caller]
pub(crate) fn carry<W: World>(world: &mut W, client: usize, key: Key, bytes: &[u8]) -> Vec<u8> {
    let (mut said, mut got) = (0, Vec::new());
    let mut buffer = [0; 4096];
    until(world, "all of it is received", |world, _| {
        said += world.say(client, &bytes[said..]);
        loop {
            match world.stack().recv(key, &mut buffer) {
                Received::Bytes(count) => got.extend_from_slice(&buffer[..count]),
                Received::Empty => break,
                other => panic!("{other:?} after {} bytes", got.len()),
            }
        }
        (got.len() >= bytes.len()).then_some(())
    });
    got
}
