//! Connections of the card's own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use dpu_server::stack::{End, Ends, Key, Received, Sent, Stack};
use mqttshim_schema::SocketOption;
use rustix::io::Errno;

use crate::world::{SERVED, World, heard, meanwhile, received, send, until};

/// The outcome of a connect that is under way.
#[track_caller]
fn outcome<W: World>(world: &mut W, key: Key) -> Result<Ends, Errno> {
    until(world, "the connect has an outcome", |world, _| world.stack().connect_result(key))
}

/// A connect that nobody takes: told at once, or later.
#[track_caller]
fn refused<W: World>(world: &mut W, key: Key, to: SocketAddr) {
    let result = match world.stack().connect(key, 0, to, &[]) {
        Ok(_) => outcome(world, key).map(|_| ()),
        Err(error) => Err(error),
    };
    assert_eq!(result, Err(Errno::CONNREFUSED));
}

pub(crate) fn a_connect_tells_both_ends_and_carries_bytes<W: World>(world: &mut W) {
    let address = world.serve();
    let local = world.stack().connect(SERVED, 0, address, &[]).unwrap();
    let ends = outcome(world, SERVED).unwrap();
    assert_eq!((ends.local, ends.peer), (local, address));
    let server = until(world, "the server has it", |world, _| world.served());
    assert_eq!(send(world, &[(SERVED, &[b"to the server"])]), [Sent::Bytes(13)]);
    assert_eq!(heard(world, server, 13).0, b"to the server");
    assert_eq!(world.say(server, b"and back"), 8);
    assert_eq!(received(world, SERVED), Received::Bytes(8));
}

pub(crate) fn a_connect_that_nobody_takes_is_refused<W: World>(world: &mut W) {
    let nobody = SocketAddr::new(world.host(), 1);
    refused(world, SERVED, nobody);
}

pub(crate) fn a_connect_from_a_bound_socket_comes_from_its_name<W: World>(world: &mut W) {
    let address = world.serve();
    let any = SocketAddr::new(world.card(), 0);
    let bound = world.stack().bind(SERVED, 0, any, &[]).unwrap();
    assert_eq!(world.stack().connect(SERVED, 0, address, &[]), Ok(bound));
    assert_eq!(outcome(world, SERVED), Ok(Ends { local: bound, peer: address }));
}

pub(crate) fn a_refused_connect_leaves_a_bound_socket_its_name<W: World>(world: &mut W) {
    let nobody = SocketAddr::new(world.host(), 1);
    let any = SocketAddr::new(world.card(), 0);
    let free = world.stack().bind(SERVED, 0, any, &[]).unwrap();
    world.stack().close(SERVED, End::Close);
    assert_eq!(world.stack().bind(SERVED, 0, free, &[]), Ok(free));
    refused(world, SERVED, nobody);
    assert_eq!(world.stack().bind(Key(2), 0, free, &[]), Err(Errno::ADDRINUSE));
    world.stack().close(SERVED, End::Close);
    assert_eq!(world.stack().bind(Key(2), 0, free, &[]), Ok(free));
}

pub(crate) fn a_connect_that_nobody_answers_is_under_way_until_its_time_is_up<W: World>(
    world: &mut W,
) {
    let deaf = world.serve_deaf();
    // tcp(7): one SYN again, after a second; two seconds later the kernel gives up.
    let once = SocketOption { level: libc::IPPROTO_TCP, name: libc::TCP_SYNCNT, value: &ONCE };
    let start = Instant::now();
    world.stack().connect(SERVED, 0, deaf, &[once]).unwrap();
    meanwhile(world, Duration::from_millis(500), |world, _| {
        world.stack().connect_result(SERVED).is_some()
    });
    assert_eq!(outcome(world, SERVED), Err(Errno::TIMEDOUT));
    let took = start.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(8), "{took:?}");
}

const ONCE: [u8; 4] = 1i32.to_ne_bytes();

pub(crate) fn a_socket_that_is_connected_does_not_connect_again<W: World>(world: &mut W) {
    let address = world.serve();
    world.stack().connect(SERVED, 0, address, &[]).unwrap();
    outcome(world, SERVED).unwrap();
    // connect(2): the kernel tells of the success first, if it was not asked for it before.
    let _ = world.stack().connect(SERVED, 0, address, &[]);
    assert_eq!(world.stack().connect(SERVED, 0, address, &[]), Err(Errno::ISCONN));
    assert_eq!(send(world, &[(SERVED, &[b"still there"])]), [Sent::Bytes(11)]);
}

pub(crate) fn a_connect_goes_by_ipv6<W: World>(world: &mut W) {
    let address = world.serve6();
    world.stack().connect(SERVED, 0, address, &[]).unwrap();
    let ends = outcome(world, SERVED).unwrap();
    assert_eq!(ends.peer, address);
    assert!(ends.local.is_ipv6() && ends.local.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED));
}
