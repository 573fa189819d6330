use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use super::*;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

/// A listener, and a channel's two ends: host, card.
fn connected(folder: &TempDir) -> (Listener, Emulated, Emulated) {
    let listener = Listener::bind(folder.path().join("channel")).expect("a listener");
    let host = Emulated::connect(listener.path()).expect("a listener answers");
    let card = listener.accept().expect("descriptors").expect("a connection waits");
    (listener, host, card)
}

/// The events that hold at this moment.
fn events(of: &impl AsFd, asked: PollFlags) -> PollFlags {
    let mut fds = [PollFd::new(of, asked)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll");
    fds[0].revents()
}

#[test]
fn the_largest_message_is_4080_bytes() {
    let folder = folder();
    let (_listener, mut host, mut card) = connected(&folder);
    let mut buffer = Vec::new();
    host.send(&[1; 4080]).expect("fits");
    card.recv(&mut buffer).expect("arrived");
    assert_eq!(buffer, [1; 4080]);
    assert_eq!(host.send(&[1; 4081]), Err(SendError::Size { bytes: 4081, limit: 4080 }));
}

#[test]
fn the_queue_holds_some_dozens_of_full_messages_and_is_writable_again_once_taken() {
    let folder = folder();
    let (_listener, mut host, mut card) = connected(&folder);
    let taken = (0..10_000).take_while(|_| host.send(&[1; 4080]).is_ok()).count();
    assert!((16..=256).contains(&taken), "{taken} messages");
    assert_eq!(host.send(&[1; 4080]), Err(SendError::WouldBlock));
    assert_eq!(events(&host, PollFlags::OUT), PollFlags::empty());

    let mut buffer = Vec::new();
    for _ in 0..taken {
        card.recv(&mut buffer).expect("queued");
    }
    assert_eq!(events(&host, PollFlags::OUT), PollFlags::OUT);
    assert_eq!(host.send(&[1; 4080]), Ok(()));
}

#[test]
fn the_descriptor_is_readable_for_a_message_and_for_a_lost_peer() {
    let folder = folder();
    let (_listener, mut host, mut card) = connected(&folder);
    let mut buffer = Vec::new();
    assert_eq!(events(&card, PollFlags::IN), PollFlags::empty());
    host.send(b"x").expect("room");
    assert_eq!(events(&card, PollFlags::IN), PollFlags::IN);
    card.recv(&mut buffer).expect("arrived");
    drop(host);
    assert!(events(&card, PollFlags::IN).contains(PollFlags::IN | PollFlags::HUP));
    assert_eq!(card.recv(&mut buffer), Err(RecvError::Lost));
}

#[test]
fn a_peer_that_leaves_unread_messages_behind_is_lost_after_what_it_had_sent() {
    let folder = folder();
    let (_listener, mut host, mut card) = connected(&folder);
    card.send(b"never read").expect("room");
    host.send(b"first").expect("room");
    host.send(b"second").expect("room");
    drop(host);
    let mut buffer = Vec::new();
    assert_eq!(card.recv(&mut buffer), Ok(()));
    assert_eq!(buffer, b"first");
    assert_eq!(card.send(b"too late"), Err(SendError::Lost));
    assert_eq!(card.recv(&mut buffer), Ok(()));
    assert_eq!(buffer, b"second");
    assert_eq!(card.recv(&mut buffer), Err(RecvError::Lost));
}

#[test]
fn a_packet_beyond_the_limit_ends_the_channel() {
    let folder = folder();
    for capacity in [0, 65_536] {
        let listener = Listener::bind(folder.path().join("channel")).expect("a listener");
        let stranger = packet_socket().expect("a socket");
        let address = SocketAddrUnix::new(listener.path()).expect("short");
        rustix::net::connect(&stranger, &address).expect("a listener answers");
        let mut card = listener.accept().expect("descriptors").expect("a connection waits");
        rustix::net::send(&stranger, &[1; 4081], SendFlags::NOSIGNAL).expect("room");

        let mut buffer = Vec::with_capacity(capacity);
        assert_eq!(card.recv(&mut buffer), Err(RecvError::Lost));
        assert_eq!(buffer, b"");
        assert_eq!(card.send(b"x"), Err(SendError::Lost));
        let outcome = rustix::net::send(&stranger, b"x", SendFlags::NOSIGNAL);
        assert_eq!(outcome, Err(Errno::PIPE));
    }
}

#[test]
fn an_empty_packet_ends_the_channel() {
    let folder = folder();
    let (_listener, host, mut card) = connected(&folder);
    rustix::net::send(&host, b"", SendFlags::NOSIGNAL).expect("room");
    assert_eq!(card.recv(&mut Vec::new()), Err(RecvError::Lost));
}

#[test]
fn accept_does_not_wait() {
    let folder = folder();
    let listener = Listener::bind(folder.path().join("channel")).expect("a listener");
    assert!(listener.accept().expect("descriptors").is_none());
}

#[test]
fn a_file_that_nobody_answers_on_is_replaced() {
    let folder = folder();
    let path = folder.path().join("channel");
    // As a killed process leaves it: closed without its file removed.
    let socket = packet_socket().expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("free");
    drop(socket);
    assert_eq!(
        Emulated::connect(&path).expect_err("nobody"),
        ConnectError::NobodyListens { path: path.clone() }
    );

    let listener = Listener::bind(&path).expect("the stale file is replaced");
    Emulated::connect(&path).expect("the new listener answers");
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_path_in_use_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("channel");
    let in_use = BindError::InUse { path: path.clone() };

    let listener = Listener::bind(&path).expect("free");
    assert_eq!(Listener::bind(&path).expect_err("in use"), in_use);
    Emulated::connect(&path).expect("the first listener still answers");
    drop(listener);

    let stream = UnixListener::bind(&path).expect("free");
    assert_eq!(Listener::bind(&path).expect_err("in use"), in_use);
    drop(stream);
    fs::remove_file(&path).expect("left behind");

    let _datagram = UnixDatagram::bind(&path).expect("free");
    assert_eq!(Listener::bind(&path).expect_err("in use"), in_use);
}

#[test]
fn a_file_that_is_no_socket_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("channel");
    fs::write(&path, "precious").expect("a writable folder");
    let error = Listener::bind(&path).expect_err("not a socket");
    assert_eq!(error, BindError::NotASocket { path: path.clone() });
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn errors_name_the_path_and_the_remedy() {
    let folder = folder();
    let missing = folder.path().join("missing/channel");
    assert_eq!(
        Listener::bind(&missing).expect_err("no folder").to_string(),
        format!("the folder of {} does not exist: create it", missing.display())
    );
    let long = folder.path().join("x".repeat(108));
    assert_eq!(Listener::bind(&long).expect_err("long"), BindError::Path { path: long.clone() });
    assert_eq!(Emulated::connect(&long).expect_err("long"), ConnectError::Path { path: long });

    let error = Emulated::connect(&missing).expect_err("no file");
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(text.contains(&*missing.to_string_lossy()) && text.contains("dpu-server run"));
}

#[test]
fn only_the_owner_may_connect() {
    let folder = folder();
    let listener = Listener::bind(folder.path().join("channel")).expect("a listener");
    let mode = fs::metadata(listener.path()).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_listener_removes_its_own_file_only() {
    let folder = folder();
    let path = folder.path().join("channel");
    let first = Listener::bind(&path).expect("free");
    fs::remove_file(&path).expect("somebody tidies up");
    let second = Listener::bind(&path).expect("free again");
    drop(first);
    Emulated::connect(second.path()).expect("the second listener's file is still there");
}
