//! Bytes both ways, and the ends of each way.

use dpu_server::stack::{Event, Key, Received, Sent, Stack};
use mqttshim_schema::How;
use rustix::io::Errno;

use crate::world::{
    Heard, LISTENER, SERVED, World, carry, connect, ending, heard, listen, pair, pattern, received,
    send, until,
};

const STREAM_BYTES: usize = 2_000_000;
const CLIENTS: u32 = 20;

/// Whether an event says that a connection takes bytes.
fn has_room(event: &Event, of: Key) -> bool {
    matches!(event, Event::Socket { key, writable: true, .. } if *key == of)
}

pub(crate) fn bytes_arrive_whole_and_in_order_both_ways<W: World>(world: &mut W) {
    let client = pair(world);
    let bytes = pattern(STREAM_BYTES);
    assert!(carry(world, client, SERVED, &bytes) == bytes, "client to card");
    let (mut sent, mut got) = (0, Vec::new());
    let mut is_full = false;
    until(world, "all of it is heard", |world, events| {
        is_full &= !events.iter().any(|event| has_room(event, SERVED));
        while !is_full && sent < bytes.len() {
            match send(world, &[(SERVED, &[&bytes[sent..]])])[0] {
                Sent::Bytes(count) => sent += count,
                Sent::Full => is_full = true,
                Sent::Gone(error) => panic!("{error} after {sent} bytes"),
            }
        }
        assert_eq!(world.hear(client, &mut got), Heard::Open);
        (got.len() >= bytes.len()).then_some(())
    });
    assert!(got == bytes, "card to client");
}

pub(crate) fn a_batch_reaches_everybody_in_the_order_of_its_parts<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let clients: Vec<usize> = (1..=CLIENTS).map(|key| connect(world, address, Key(key))).collect();
    let parts: [&[u8]; 3] = [b"one ", b"two ", b"three"];
    let part = |key: u32| if key.is_multiple_of(2) { &parts[..] } else { &parts[2..] };
    let batch: Vec<(Key, &[&[u8]])> = (1..=CLIENTS).map(|key| (Key(key), part(key))).collect();
    let sent = send(world, &batch);
    for (key, client) in (1..=CLIENTS).zip(clients) {
        let expected = part(key).concat();
        assert_eq!(sent[key as usize - 1], Sent::Bytes(expected.len()));
        assert_eq!(heard(world, client, expected.len()).0, expected);
    }
}

pub(crate) fn deliveries_arrive_or_are_refused_and_none_overtakes_another<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let clients: Vec<usize> = (1..=CLIENTS).map(|key| connect(world, address, Key(key))).collect();
    let messages: [&[u8]; 3] = [b"to all ", b"to even ones ", b"to all again "];
    let is_for = |message: usize, key: u32| message != 1 || key.is_multiple_of(2);
    for round in 0..20 {
        let deliveries: Vec<(Key, u32, &[u8])> = (0..messages.len())
            .flat_map(|at| (1..=CLIENTS).map(move |key| (at, key)))
            .filter(|&(at, key)| is_for(at, key))
            .map(|(at, key)| (Key(key), at as u32, messages[at]))
            .collect();
        let mut refused = Vec::new();
        world.stack().deliver(deliveries.iter().copied(), &mut refused);
        assert!(refused.is_sorted(), "{refused:?}");
        for (key, client) in (1..=CLIENTS).zip(&clients) {
            let of = |place: &u32| deliveries[*place as usize].0 == Key(key);
            let left: Vec<&[u8]> = refused
                .iter()
                .filter(|place| of(place))
                .map(|&it| deliveries[it as usize].2)
                .collect();
            if !left.is_empty() {
                let sent = send(world, &[(Key(key), &left)])[0];
                assert_eq!(sent, Sent::Bytes(left.concat().len()), "round {round}");
            }
            let all = (0..messages.len()).filter(|at| is_for(*at, key)).map(|at| messages[at]);
            let expected = all.collect::<Vec<_>>().concat();
            assert_eq!(heard(world, *client, expected.len()).0, expected, "round {round}");
        }
    }
}

pub(crate) fn a_delivery_of_any_length_arrives_whole_or_is_refused_whole<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = connect(world, address, Key(1));
    for bytes in [1, 1_000, 10_000, 300_000] {
        // Of the largest sum.
        let message = vec![0xff; bytes];
        let before = world.stack().sends();
        let mut refused = Vec::new();
        world.stack().deliver(std::iter::once((Key(1), 0, &message[..])), &mut refused);
        let after = world.stack().sends();
        if refused.is_empty() {
            assert_eq!(heard(world, client, bytes).0, message);
        } else {
            assert_eq!(
                (&refused[..], after),
                (&[0][..], before),
                "it is sent, and counted, another way"
            );
            // What waits with the caller goes first.
            let _ = world.hear(client, &mut Vec::new());
            world.stack().deliver(std::iter::once((Key(1), 0, &b"y"[..])), &mut refused);
            assert_eq!(refused, [0]);
            send(world, &[(Key(1), &[b"x"])]);
            assert_eq!(heard(world, client, 1).0, b"x");
        }
    }
}

pub(crate) fn who_does_not_read_fills_only_its_own_connection_and_is_told_of_room<W: World>(
    world: &mut W,
) {
    let address = listen(world, &[]);
    let stalled = connect(world, address, SERVED);
    let other = connect(world, address, Key(2));
    let big = pattern(1 << 20);
    let (mut taken, mut others) = (Vec::new(), 0);
    // Full is when a connection takes nothing more though the stack had its turn.
    let mut is_full = 0;
    until(world, "the connection is full", |world, events| {
        is_full = if events.iter().any(|event| has_room(event, SERVED)) { 0 } else { is_full + 1 };
        let sent = send(world, &[(SERVED, &[&big]), (Key(2), &[b"x"])]);
        assert_eq!(sent[1], Sent::Bytes(1));
        others += 1;
        match sent[0] {
            Sent::Bytes(count) => {
                taken.extend_from_slice(&big[..count]);
                is_full = 0;
            }
            Sent::Full => {}
            Sent::Gone(error) => panic!("{error}"),
        }
        (is_full >= 10).then_some(())
    });
    assert_eq!(heard(world, other, others).0, vec![b'x'; others]);
    let (mut got, mut is_told) = (Vec::new(), false);
    until(world, "all that was taken is read, and room is told", |world, events| {
        is_told |= events.iter().any(|event| has_room(event, SERVED));
        assert_eq!(world.hear(stalled, &mut got), Heard::Open);
        (got.len() >= taken.len() && is_told).then_some(())
    });
    assert!(got == taken);
    assert_eq!(send(world, &[(SERVED, &[b"more"])]), [Sent::Bytes(4)]);
    assert_eq!(heard(world, stalled, 4).0, b"more");
}

pub(crate) fn nothing_there_is_empty_and_an_end_comes_after_the_bytes<W: World>(world: &mut W) {
    let client = pair(world);
    assert_eq!(world.stack().recv(SERVED, &mut [0; 8]), Received::Empty);
    world.say(client, b"bytes");
    world.fin(client);
    let told = |it: &Event| matches!(it, Event::Socket { key: SERVED, ended: true, .. });
    until(world, "an end is told", |_, events| events.iter().any(told).then_some(()));
    let mut buffer = [0; 3];
    assert_eq!(world.stack().recv(SERVED, &mut buffer), Received::Bytes(3));
    assert_eq!(&buffer, b"byt");
    assert_eq!(world.stack().recv(SERVED, &mut buffer), Received::Bytes(2));
    for _ in 0..2 {
        assert_eq!(world.stack().recv(SERVED, &mut buffer), Received::Fin);
    }
}

pub(crate) fn a_half_closed_connection_carries_bytes_the_other_way<W: World>(world: &mut W) {
    let client = pair(world);
    world.say(client, b"last");
    world.fin(client);
    assert_eq!(received(world, SERVED), Received::Bytes(4));
    assert_eq!(received(world, SERVED), Received::Fin);
    assert_eq!(send(world, &[(SERVED, &[b"answer"])]), [Sent::Bytes(6)]);
    world.stack().shutdown(SERVED, How::Write).unwrap();
    assert_eq!(ending(world, client), (b"answer".to_vec(), Heard::Fin));
}

pub(crate) fn nothing_is_sent_after_the_end_of_sending<W: World>(world: &mut W) {
    let client = pair(world);
    assert_eq!(send(world, &[(SERVED, &[b"all"])]), [Sent::Bytes(3)]);
    world.stack().shutdown(SERVED, How::Write).unwrap();
    assert_eq!(send(world, &[(SERVED, &[b"more"])]), [Sent::Gone(Errno::PIPE)]);
    assert_eq!(ending(world, client), (b"all".to_vec(), Heard::Fin));
    let bytes = pattern(100_000);
    assert!(carry(world, client, SERVED, &bytes) == bytes, "the other way goes on");
}

pub(crate) fn a_read_half_that_is_shut_is_at_its_end<W: World>(world: &mut W) {
    let client = pair(world);
    world.stack().shutdown(SERVED, How::Read).unwrap();
    assert_eq!(received(world, SERVED), Received::Fin);
    assert_eq!(send(world, &[(SERVED, &[b"goes on"])]), [Sent::Bytes(7)]);
    assert_eq!(heard(world, client, 7).0, b"goes on");
}

pub(crate) fn shutdown_needs_a_connection<W: World>(world: &mut W) {
    let any = std::net::SocketAddr::new(world.card(), 0);
    world.stack().bind(LISTENER, 0, any, &[]).unwrap();
    assert_eq!(world.stack().shutdown(LISTENER, How::Both), Err(Errno::NOTCONN));
}
