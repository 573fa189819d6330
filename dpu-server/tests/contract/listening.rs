//! Names, listeners, and who is let in.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dpu_server::stack::{AcceptError, End, Key, Received, Sent, Stack};
use mqttshim_schema::How;
use rustix::io::Errno;

use crate::world::{
    Heard, LISTENER, ONE, SERVED, World, accept, connect, ending, listen, meanwhile, on, pair,
    received, send, until,
};

const REUSE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
const SHARE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEPORT);
/// Within it a SYN that was not answered is sent again.
const SYN_AGAIN: Duration = Duration::from_millis(300);

pub(crate) fn port_zero_is_answered_with_a_port_of_its_own<W: World>(world: &mut W) {
    let any = SocketAddr::new(world.card(), 0);
    let first = world.stack().bind(Key(0), 0, any, &[]).unwrap();
    let second = world.stack().bind(Key(1), 0, any, &[]).unwrap();
    assert_eq!([first.ip(), second.ip()], [any.ip(); 2]);
    assert!(first.port() != 0 && second.port() != 0 && first.port() != second.port());
    assert_eq!(world.stack().listen(Key(0), 1, &[]), Ok(first));
}

pub(crate) fn an_address_in_use_is_refused_until_it_is_free<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    assert_eq!(world.stack().bind(SERVED, 0, address, &[]), Err(Errno::ADDRINUSE));
    world.stack().close(LISTENER, End::Close);
    assert_eq!(world.stack().bind(SERVED, 0, address, &[]), Ok(address));
}

pub(crate) fn a_listener_may_listen_again<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    assert_eq!(world.stack().listen(LISTENER, 5, &[]), Ok(address));
    connect(world, address, SERVED);
}

pub(crate) fn nobody_waiting_is_told_as_empty<W: World>(world: &mut W) {
    listen(world, &[]);
    assert_eq!(world.stack().accept(LISTENER, SERVED), Err(AcceptError::Empty));
}

pub(crate) fn connections_are_accepted_in_their_order_with_both_their_ends<W: World>(
    world: &mut W,
) {
    let address = listen(world, &[]);
    let mut own = Vec::new();
    for _ in 0..5 {
        let client = world.dial(address);
        let end = until(world, "a client is connected", |world, _| world.dialled(client));
        own.push(end.unwrap());
    }
    for (key, peer) in (1..).zip(own) {
        let ends = accept(world, Key(key));
        assert_eq!((ends.local, ends.peer), (address, peer));
    }
}

pub(crate) fn a_client_that_left_is_accepted_all_the_same<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = world.dial(address);
    until(world, "a client is connected", |world, _| world.dialled(client)).unwrap();
    world.say(client, b"and gone");
    world.fin(client);
    accept(world, SERVED);
    assert_eq!(received(world, SERVED), Received::Bytes(8));
    assert_eq!(received(world, SERVED), Received::Fin);
}

pub(crate) fn a_port_nobody_listens_at_refuses<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    world.stack().close(LISTENER, End::Close);
    let client = world.dial(address);
    let outcome = until(world, "a client has an answer", |world, _| world.dialled(client));
    assert_eq!(outcome, Err(ErrorKind::ConnectionRefused));
}

pub(crate) fn a_key_that_is_not_open_is_a_bad_descriptor<W: World>(world: &mut W) {
    pair(world);
    let nobody = Key(77);
    let stack = world.stack();
    assert_eq!(stack.listen(nobody, 1, &[]), Err(Errno::BADF));
    assert_eq!(stack.accept(nobody, Key(78)), Err(AcceptError::Failed(Errno::BADF)));
    assert_eq!(stack.connect_result(nobody), None);
    assert_eq!(stack.option(nobody, REUSE.0, REUSE.1, &mut [0; 4]), Err(Errno::BADF));
    assert_eq!(stack.set_option(nobody, REUSE.0, REUSE.1, &ONE), Err(Errno::BADF));
    assert_eq!(stack.recv(nobody, &mut [0; 4]), Received::Gone(Errno::BADF));
    assert_eq!(stack.shutdown(nobody, How::Both), Err(Errno::BADF));
    stack.close(nobody, End::Close);
    let sent = send(world, &[(nobody, &[b"x"]), (SERVED, &[b"x"])]);
    assert_eq!(sent, [Sent::Gone(Errno::BADF), Sent::Bytes(1)]);
}

pub(crate) fn a_port_is_shared_by_equal_users_only<W: World>(world: &mut W) {
    let share = [on(SHARE.0, SHARE.1)];
    let specific = world.card();
    let stack = world.stack();
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let address = stack.bind(Key(0), 1000, any, &share).unwrap();
    stack.listen(Key(0), 10, &[]).unwrap();
    assert_eq!(stack.bind(Key(1), 1000, address, &share), Ok(address));
    let specific = SocketAddr::new(specific, address.port());
    assert_eq!(stack.bind(Key(2), 1001, specific, &share), Err(Errno::ADDRINUSE));
    let wide = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    assert_eq!(stack.bind(Key(2), 1001, wide, &share), Err(Errno::ADDRINUSE));
    let only = [share[0], on(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)];
    assert_eq!(stack.bind(Key(2), 1001, wide, &only), Ok(wide));
}

pub(crate) fn two_users_who_may_both_reuse_an_address_meet_at_listen<W: World>(world: &mut W) {
    let both = [on(SHARE.0, SHARE.1), on(REUSE.0, REUSE.1)];
    let any = SocketAddr::new(world.card(), 0);
    let stack = world.stack();
    let address = stack.bind(Key(0), 1000, any, &both).unwrap();
    assert_eq!(stack.bind(Key(1), 1001, address, &both), Ok(address));
    assert_eq!(stack.listen(Key(0), 10, &[]), Ok(address));
    assert_eq!(stack.listen(Key(1), 10, &[]), Err(Errno::ADDRINUSE));
}

pub(crate) fn a_listener_of_both_versions_of_ip_tells_mapped_addresses<W: World>(world: &mut W) {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let bound = world.stack().bind(LISTENER, 0, any, &[]).unwrap();
    world.stack().listen(LISTENER, 10, &[]).unwrap();
    let client = world.dial(SocketAddr::new(world.card(), bound.port()));
    let own = until(world, "a client is connected", |world, _| world.dialled(client)).unwrap();
    let ends = accept(world, SERVED);
    let mapped = |ip| match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    };
    assert_eq!(ends.local, SocketAddr::new(mapped(world.card()), bound.port()));
    assert_eq!(ends.peer, SocketAddr::new(mapped(own.ip()), own.port()));
}

pub(crate) fn a_client_that_reset_is_accepted_all_the_same<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = world.dial(address);
    until(world, "a client is connected", |world, _| world.dialled(client)).unwrap();
    world.reset(client);
    meanwhile(world, Duration::from_millis(50), |_, _| false);
    accept(world, SERVED);
    assert_eq!(received(world, SERVED), Received::Gone(Errno::CONNRESET));
}

pub(crate) fn a_full_backlog_lets_the_next_in_when_somebody_was_accepted<W: World>(world: &mut W) {
    let any = SocketAddr::new(world.card(), 0);
    let address = world.stack().bind(LISTENER, 0, any, &[]).unwrap();
    world.stack().listen(LISTENER, 0, &[]).unwrap();
    // listen(2), as Linux counts: one more than the backlog waits.
    let first = world.dial(address);
    until(world, "the first is connected", |world, _| world.dialled(first)).unwrap();
    meanwhile(world, Duration::from_millis(50), |_, _| false);
    let second = world.dial(address);
    meanwhile(world, SYN_AGAIN, |world, _| world.dialled(second).is_some());
    accept(world, SERVED);
    until(world, "the second is connected", |world, _| world.dialled(second)).unwrap();
    accept(world, Key(2));
}

pub(crate) fn a_listener_that_is_closed_resets_who_waits<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = world.dial(address);
    until(world, "a client is connected", |world, _| world.dialled(client)).unwrap();
    world.stack().close(LISTENER, End::Close);
    assert_eq!(ending(world, client).1, Heard::Reset);
}

pub(crate) fn a_port_with_connections_is_bound_again_by_who_reuses_addresses<W: World>(
    world: &mut W,
) {
    let reuse = [on(REUSE.0, REUSE.1)];
    let address = listen(world, &reuse);
    connect(world, address, SERVED);
    world.stack().close(LISTENER, End::Close);
    assert_eq!(world.stack().bind(LISTENER, 0, address, &[]), Err(Errno::ADDRINUSE));
    assert_eq!(world.stack().bind(LISTENER, 0, address, &reuse), Ok(address));
    world.stack().listen(LISTENER, 10, &[]).unwrap();
    connect(world, address, Key(2));
}
