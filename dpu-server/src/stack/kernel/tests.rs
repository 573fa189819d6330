//! The kernel stack over loopback, with an io_uring and without.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Instant;

use super::*;

const LISTENER: Key = Key(0);
const ONE: [u8; 4] = 1i32.to_ne_bytes();
const PATIENCE: Duration = Duration::from_secs(10);
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Both ways to send; the ring only where this machine grants one.
fn stacks() -> Vec<Kernel> {
    let mut stacks = vec![Kernel::new(None).unwrap()];
    match Uring::new() {
        Ok(uring) => stacks.push(Kernel::new(Some(uring)).unwrap()),
        Err(refused) => println!("SKIPPED with io_uring: {refused}"),
    }
    stacks
}

fn option(name: i32) -> SocketOption<'static> {
    SocketOption { level: libc::SOL_SOCKET, name, value: &ONE }
}

#[track_caller]
fn listen(stack: &mut Kernel, key: Key, address: SocketAddr) -> SocketAddr {
    let bound = stack.bind(key, 0, address, &[option(libc::SO_REUSEADDR)]).unwrap();
    assert_eq!(stack.listen(key, 1024, &[]).unwrap(), bound);
    bound
}

/// Turns the stack until `done` says so.
#[track_caller]
fn until(stack: &mut Kernel, mut done: impl FnMut(&mut Kernel, &[Event]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    loop {
        stack.wait(Some(Duration::from_millis(5)), &mut events).unwrap();
        if done(stack, &events) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing happened for {PATIENCE:?}: {events:?}");
        events.clear();
    }
}

/// A connection: its client, and the card's end as `key`.
#[track_caller]
fn accept(stack: &mut Kernel, address: SocketAddr, key: Key) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut ends = None;
    until(stack, |stack, _| {
        ends = stack.accept(LISTENER, key).ok();
        ends.is_some()
    });
    assert_eq!(ends.unwrap().peer.port(), client.local_addr().unwrap().port());
    client
}

#[track_caller]
fn received(stack: &mut Kernel, key: Key) -> Received {
    let mut outcome = Received::Empty;
    until(stack, |stack, _| {
        outcome = stack.recv(key, &mut [0; 4096]);
        outcome != Received::Empty
    });
    outcome
}

fn send(stack: &mut Kernel, parts: &[(Key, &[&[u8]])]) -> Vec<Sent> {
    let mut batch = Batch::default();
    for (key, part) in parts {
        batch.push(*key, part.iter().copied());
    }
    let mut sent = Vec::new();
    stack.send(&batch, &mut sent);
    sent
}

#[test]
fn every_way_to_send_delivers_the_same_bytes() {
    for mut stack in stacks() {
        let address = listen(&mut stack, LISTENER, LOOPBACK);
        let mut clients: Vec<_> =
            (1..=20).map(|key| (key, accept(&mut stack, address, Key(key)))).collect();
        let parts: [&[u8]; 3] = [b"one ", b"two ", b"three"];
        let batch: Vec<(Key, &[&[u8]])> = (1..=20)
            .map(|key| (Key(key), if key % 2 == 0 { &parts[..] } else { &parts[2..] }))
            .collect();
        let sent = send(&mut stack, &batch);
        for (key, client) in &mut clients {
            let expected: &[u8] = if *key % 2 == 0 { b"one two three" } else { b"three" };
            assert_eq!(sent[*key as usize - 1], Sent::Bytes(expected.len()));
            let mut bytes = vec![0; expected.len()];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, expected);
        }
    }
}

#[test]
fn a_batch_larger_than_the_ring_reaches_everybody() {
    for mut stack in stacks() {
        let address = listen(&mut stack, LISTENER, LOOPBACK);
        let mut clients: Vec<_> =
            (1..=1100).map(|key| accept(&mut stack, address, Key(key))).collect();
        let part: &[&[u8]] = &[b"to all"];
        let sent = send(&mut stack, &(1..=1100).map(|key| (Key(key), part)).collect::<Vec<_>>());
        assert!(sent.iter().all(|sent| *sent == Sent::Bytes(6)), "{sent:?}");
        for client in &mut clients {
            let mut bytes = [0; 6];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"to all");
        }
    }
}

#[test]
fn a_client_that_does_not_read_fills_its_own_connection_and_is_reported_when_it_reads() {
    for mut stack in stacks() {
        let address = listen(&mut stack, LISTENER, LOOPBACK);
        let mut stalled = accept(&mut stack, address, Key(1));
        let mut others = [2, 3].map(|key| accept(&mut stack, address, Key(key)));
        let big = vec![7u8; 1 << 20];
        let mut taken = 0;
        loop {
            let sent = send(&mut stack, &[(Key(1), &[&big]), (Key(2), &[b"x"]), (Key(3), &[b"y"])]);
            assert_eq!(sent[1..], [Sent::Bytes(1), Sent::Bytes(1)]);
            match sent[0] {
                Sent::Bytes(bytes) => taken += bytes,
                Sent::Full => break,
                Sent::Gone(error) => panic!("{error}"),
            }
        }
        let mut events = Vec::new();
        stack.wait(Some(Duration::ZERO), &mut events).unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; taken];
            stalled.read_exact(&mut bytes).unwrap();
            (stalled, bytes)
        });
        until(&mut stack, |_, events| {
            events
                .iter()
                .any(|event| matches!(event, Event::Socket { key: Key(1), writable: true, .. }))
        });
        let (_stalled, bytes) = reader.join().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        let mut byte = [0];
        others[0].read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }
}

#[test]
fn a_send_to_a_connection_that_was_reset_says_so_and_harms_no_other() {
    for mut stack in stacks() {
        let address = listen(&mut stack, LISTENER, LOOPBACK);
        let gone = accept(&mut stack, address, Key(1));
        let mut clients = [2, 3].map(|key| accept(&mut stack, address, Key(key)));
        sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        assert_eq!(received(&mut stack, Key(1)), Received::Gone(Errno::CONNRESET));
        let sent = send(&mut stack, &[(Key(1), &[b"x"]), (Key(2), &[b"x"]), (Key(3), &[b"x"])]);
        assert_eq!(sent, [Sent::Gone(Errno::PIPE), Sent::Bytes(1), Sent::Bytes(1)]);
        let mut byte = [0];
        clients[0].read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }
}

#[test]
fn an_address_in_use_is_refused_as_the_kernel_does() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, LOOPBACK);
    assert_eq!(stack.bind(Key(1), 0, address, &[]), Err(Errno::ADDRINUSE));
    stack.close(LISTENER, End::Close);
    assert_eq!(stack.bind(Key(1), 0, address, &[]), Ok(address));
}

#[test]
fn a_port_is_shared_by_equal_users_only() {
    let mut stack = Kernel::new(None).unwrap();
    let share = [option(libc::SO_REUSEPORT)];
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let address = stack.bind(Key(0), 1000, any, &share).unwrap();
    stack.listen(Key(0), 10, &[]).unwrap();
    assert_eq!(stack.bind(Key(1), 1000, address, &share), Ok(address));
    let specific = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    assert_eq!(stack.bind(Key(2), 1001, specific, &share), Err(Errno::ADDRINUSE));
    let wide = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    assert_eq!(stack.bind(Key(2), 1001, wide, &share), Err(Errno::ADDRINUSE));
    let only = [
        share[0],
        SocketOption { level: libc::IPPROTO_IPV6, name: libc::IPV6_V6ONLY, value: &ONE },
    ];
    assert_eq!(stack.bind(Key(2), 1001, wide, &only), Ok(wide));
}

#[test]
fn two_users_who_may_both_reuse_an_address_meet_at_listen() {
    let mut stack = Kernel::new(None).unwrap();
    let both = [option(libc::SO_REUSEPORT), option(libc::SO_REUSEADDR)];
    let address = stack.bind(Key(0), 1000, LOOPBACK, &both).unwrap();
    assert_eq!(stack.bind(Key(1), 1001, address, &both), Ok(address));
    stack.listen(Key(0), 10, &[]).unwrap();
    assert_eq!(stack.listen(Key(1), 10, &[]), Err(Errno::ADDRINUSE));
}

#[test]
fn options_have_the_kernels_values_and_errors() {
    let mut stack = Kernel::new(None).unwrap();
    listen(&mut stack, LISTENER, LOOPBACK);
    let mut value = [0; 64];
    let bytes = stack.option(LISTENER, libc::SOL_SOCKET, libc::SO_REUSEADDR, &mut value).unwrap();
    assert_eq!(value[..bytes], ONE);
    // socket(7): the kernel doubles what was asked for.
    let asked = 8192i32.to_ne_bytes();
    stack.set_option(LISTENER, libc::SOL_SOCKET, libc::SO_SNDBUF, &asked).unwrap();
    let bytes = stack.option(LISTENER, libc::SOL_SOCKET, libc::SO_SNDBUF, &mut value).unwrap();
    assert_eq!(value[..bytes], 16384i32.to_ne_bytes());
    // What mosquitto meets on an IPv4 socket.
    let refused = stack.set_option(LISTENER, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &ONE);
    assert_eq!(refused, Err(Errno::NOPROTOOPT));
    let short = stack.set_option(LISTENER, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &[1]);
    assert_eq!(short, Err(Errno::INVAL));
}

#[test]
fn options_that_mean_something_else_in_the_cards_process_do_not_travel() {
    let mut stack = Kernel::new(None).unwrap();
    listen(&mut stack, LISTENER, LOOPBACK);
    for name in [libc::SO_ATTACH_FILTER, libc::SO_MARK, libc::SO_RCVBUFFORCE] {
        let refused = stack.set_option(LISTENER, libc::SOL_SOCKET, name, &[0; 16]);
        assert_eq!(refused, Err(Errno::NOPROTOOPT), "{name}");
    }
    let refused =
        stack.option(LISTENER, libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE, &mut [0; 64]);
    assert_eq!(refused, Err(Errno::NOPROTOOPT));
    let priority = 7i32.to_ne_bytes();
    let refused = stack.set_option(LISTENER, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority);
    assert_eq!(refused, Err(Errno::PERM));
}

#[test]
fn no_delay_is_always_on_and_reads_back_as_the_program_set_it() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, LOOPBACK);
    let _client = accept(&mut stack, address, Key(1));
    let asked = |stack: &mut Kernel| {
        let mut value = [9; 4];
        assert_eq!(stack.option(Key(1), libc::IPPROTO_TCP, libc::TCP_NODELAY, &mut value), Ok(4));
        i32::from_ne_bytes(value)
    };
    let real =
        |stack: &Kernel| sockopt::tcp_nodelay(&stack.socket(Key(1)).unwrap().descriptor).unwrap();
    assert_eq!((asked(&mut stack), real(&stack)), (0, true));
    stack.set_option(Key(1), libc::IPPROTO_TCP, libc::TCP_NODELAY, &ONE).unwrap();
    assert_eq!((asked(&mut stack), real(&stack)), (1, true));
    stack.set_option(Key(1), libc::IPPROTO_TCP, libc::TCP_NODELAY, &[0; 4]).unwrap();
    assert_eq!((asked(&mut stack), real(&stack)), (0, true));
}

#[test]
fn a_half_closed_connection_still_carries_bytes_the_other_way() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, LOOPBACK);
    let mut client = accept(&mut stack, address, Key(1));
    client.write_all(b"last").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(received(&mut stack, Key(1)), Received::Bytes(4));
    assert_eq!(received(&mut stack, Key(1)), Received::Fin);
    assert_eq!(send(&mut stack, &[(Key(1), &[b"answer"])]), [Sent::Bytes(6)]);
    stack.shutdown(Key(1), How::Write).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"answer");
    stack.close(Key(1), End::Close);
}

#[test]
fn a_reset_reaches_the_client_as_one_and_so_does_a_close_with_zero_linger_or_unread_bytes() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, LOOPBACK);
    let linger = [1i32.to_ne_bytes(), [0; 4]].concat();
    for way in 0..3 {
        let mut client = accept(&mut stack, address, Key(1));
        match way {
            0 => stack.close(Key(1), End::Reset),
            1 => {
                stack.set_option(Key(1), libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
                stack.close(Key(1), End::Close);
            }
            _ => {
                client.write_all(b"unread").unwrap();
                until(&mut stack, |_, events| {
                    events.iter().any(|event| {
                        matches!(event, Event::Socket { key: Key(1), readable: true, .. })
                    })
                });
                stack.close(Key(1), End::Close);
            }
        }
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{way}");
    }
}

#[test]
fn a_connect_reports_both_ends_or_why_not() {
    let mut stack = Kernel::new(None).unwrap();
    let server = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let address = server.local_addr().unwrap();
    stack.connect(Key(1), 0, address, &[]).unwrap();
    let mut result = None;
    until(&mut stack, |stack, _| {
        result = stack.connect_result(Key(1));
        result.is_some()
    });
    assert_eq!(result.unwrap().unwrap().peer, address);
    drop(server);
    let bound = stack.bind(Key(2), 0, LOOPBACK, &[]).unwrap();
    let result = match stack.connect(Key(2), 0, address, &[]) {
        Err(error) => Err(error),
        Ok(_) => {
            let mut result = None;
            until(&mut stack, |stack, _| {
                result = stack.connect_result(Key(2));
                result.is_some()
            });
            result.unwrap().map(|_| ())
        }
    };
    assert_eq!(result, Err(Errno::CONNREFUSED));
    assert_eq!(stack.socket(Key(2)).unwrap().local().unwrap().ip(), bound.ip());
}

#[test]
fn one_dual_stack_listener_takes_both_families() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, (Ipv6Addr::UNSPECIFIED, 0).into());
    let _four = accept(&mut stack, (Ipv4Addr::LOCALHOST, address.port()).into(), Key(1));
    let _six = accept(&mut stack, (Ipv6Addr::LOCALHOST, address.port()).into(), Key(2));
    let peer = rustix::net::getpeername(&stack.socket(Key(1)).unwrap().descriptor).unwrap();
    let SocketAddr::V6(peer) = SocketAddr::try_from(peer.unwrap()).unwrap() else { panic!() };
    assert_eq!(peer.ip().to_ipv4_mapped(), Some(Ipv4Addr::LOCALHOST));
}

#[test]
fn a_stale_event_of_a_reused_key_is_dropped() {
    let mut stack = Kernel::new(None).unwrap();
    let address = listen(&mut stack, LISTENER, LOOPBACK);
    let _first = accept(&mut stack, address, Key(1));
    let tag = stack.socket(Key(1)).unwrap().tag(Key(1));
    stack.close(Key(1), End::Close);
    let _second = accept(&mut stack, address, Key(1));
    assert_eq!(stack.sockets.tagged(tag), None);
    let tag = stack.socket(Key(1)).unwrap().tag(Key(1));
    assert_eq!(stack.sockets.tagged(tag), Some(Key(1)));
}

#[test]
fn a_watched_descriptor_wakes_the_wait() {
    let mut stack = Kernel::new(None).unwrap();
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    stack.watch(Watch(3), ours.as_fd(), false).unwrap();
    theirs.write_all(b"x").unwrap();
    until(&mut stack, |_, events| events.contains(&Event::Watched(Watch(3))));
    stack.unwatch(ours.as_fd());
    let mut events = Vec::new();
    stack.wait(Some(Duration::ZERO), &mut events).unwrap();
    assert_eq!(events, []);
}
