//! How connections end, from either side.

use std::time::Duration;

use dpu_server::stack::{End, Event, Key, Received, Sent, Stack};
use rustix::io::Errno;

use crate::world::{
    Heard, LISTENER, SERVED, World, accept, connect, ending, heard, listen, meanwhile, pair,
    pattern, received, send, until,
};

/// `struct linger`: on, and no time.
const AT_ONCE: [u8; 8] = [ONE[0], ONE[1], ONE[2], ONE[3], 0, 0, 0, 0];
const ONE: [u8; 4] = 1i32.to_ne_bytes();

pub(crate) fn a_client_that_resets_is_gone_and_takes_no_more<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = connect(world, address, SERVED);
    let other = connect(world, address, Key(2));
    world.reset(client);
    assert_eq!(received(world, SERVED), Received::Gone(Errno::CONNRESET));
    let sent = send(world, &[(SERVED, &[b"x"]), (Key(2), &[b"x"])]);
    assert_eq!(sent, [Sent::Gone(Errno::PIPE), Sent::Bytes(1)]);
    assert_eq!(heard(world, other, 1).0, b"x");
    world.stack().close(SERVED, End::Close);
}

pub(crate) fn a_reset_reaches_the_client_as_one<W: World>(world: &mut W) {
    let client = pair(world);
    world.stack().close(SERVED, End::Reset);
    assert_eq!(ending(world, client).1, Heard::Reset);
}

pub(crate) fn a_close_with_unread_bytes_resets<W: World>(world: &mut W) {
    let client = pair(world);
    world.say(client, b"unread");
    let told = |it: &Event| matches!(it, Event::Socket { key: SERVED, readable: true, .. });
    until(world, "the bytes are there", |_, events| events.iter().any(told).then_some(()));
    world.stack().close(SERVED, End::Close);
    assert_eq!(ending(world, client).1, Heard::Reset);
}

pub(crate) fn a_close_with_zero_linger_resets<W: World>(world: &mut W) {
    let client = pair(world);
    world.stack().set_option(SERVED, libc::SOL_SOCKET, libc::SO_LINGER, &AT_ONCE).unwrap();
    world.stack().close(SERVED, End::Close);
    assert_eq!(ending(world, client).1, Heard::Reset);
}

pub(crate) fn a_close_delivers_what_was_sent_and_then_an_end<W: World>(world: &mut W) {
    let client = pair(world);
    let bytes = pattern(1 << 20);
    let Sent::Bytes(taken) = send(world, &[(SERVED, &[&bytes])])[0] else { panic!("full") };
    world.stack().close(SERVED, End::Close);
    let (got, end) = ending(world, client);
    assert!(got == bytes[..taken], "{} of {taken} bytes", got.len());
    assert_eq!(end, Heard::Fin);
}

pub(crate) fn a_number_that_is_free_again_names_the_next_connection<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let first = connect(world, address, SERVED);
    world.stack().close(SERVED, End::Close);
    let second = connect(world, address, SERVED);
    world.fin(first);
    meanwhile(world, Duration::from_millis(50), |world, _| {
        world.stack().recv(SERVED, &mut [0; 64]) != Received::Empty
    });
    world.say(second, b"second");
    assert_eq!(received(world, SERVED), Received::Bytes(6));
}

pub(crate) fn bytes_for_who_has_closed_end_in_a_reset<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = connect(world, address, SERVED);
    world.stack().close(SERVED, End::Close);
    assert_eq!(ending(world, client).1, Heard::Fin);
    until(world, "the client finds out", |world, _| {
        world.is_refused(client, b"too late").then_some(())
    });
    connect(world, address, SERVED);
}

pub(crate) fn bytes_for_a_client_behind_its_end_are_told_to_have_no_taker<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = world.dial(address);
    until(world, "a client is connected", |world, _| world.dialled(client)).unwrap();
    accept(world, SERVED);
    world.say(client, b"bye");
    world.leave(client);
    assert_eq!(received(world, SERVED), Received::Bytes(3));
    assert_eq!(received(world, SERVED), Received::Fin);
    assert_eq!(send(world, &[(SERVED, &[b"x"])]), [Sent::Bytes(1)]);
    // It answers with a reset, which a holder is told of though it knows of the end.
    let told =
        |it: &Event| matches!(it, Event::Socket { key: SERVED, writable: true, ended: true, .. });
    until(world, "the reset is told", |_, events| events.iter().any(told).then_some(()));
    assert_eq!(send(world, &[(SERVED, &[b"x"])]), [Sent::Gone(Errno::PIPE)]);
    assert_eq!(world.stack().recv(SERVED, &mut [0; 8]), Received::Fin);
    world.stack().close(SERVED, End::Close);
    world.stack().close(LISTENER, End::Close);
}
