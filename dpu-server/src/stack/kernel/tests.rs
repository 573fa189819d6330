//! What the kernel stack does beyond the contract of all stacks (`tests/contract`), over loopback.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
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
