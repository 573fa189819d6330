//! The whole program over real sockets, with the test as its host.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which the lint does not know as such")]

mod host;

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use host::{
    Host, LISTENER, SESSION, Server, Told, WINDOW_BYTES, eventually, free_port, metric, read, write,
};
use mqttshim_schema::{How, Message, Notice, OptionAction, SocketId};
use rustix::process::{Resource, Rlimit, Signal, prlimit};

const CONNACK: &[u8] = b"\x20\x02\x00\x00";
const SUBSCRIBE_A: &[u8] = b"\x82\x06\x00\x01\x00\x01a\x00";
const SUBACK: &[u8] = b"\x90\x03\x00\x01\x00";
const PINGREQ: &[u8] = b"\xc0\x00";
const PINGRESP: &[u8] = b"\xd0\x00";

fn connect(index: usize) -> Vec<u8> {
    format!("\x10\x10\0\x04MQTT\x04\x02\0\0\0\x04{index:04}").into_bytes()
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 253) as u8).collect()
}

#[test]
fn a_stream_of_anything_passes_byte_for_byte_both_ways() {
    let server = Server::start(&["--trust", "suback"], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    let bytes = noise(1 << 20);
    let sender = {
        let (mut client, bytes) = (client.try_clone().unwrap(), bytes.clone());
        std::thread::spawn(move || write(&mut client, &bytes))
    };
    assert_eq!(host.read(socket, bytes.len()), bytes);
    sender.join().unwrap();
    let receiver = std::thread::spawn(move || read(&mut client, 1 << 20));
    // At most the card's window under way, which is four of these pieces.
    let mut room = 256 * 1024;
    for piece in bytes.chunks(64 * 1024) {
        while room < piece.len() {
            room += host.until(|told| match told {
                Told::Credit(of, bytes) if *of == socket => Some(*bytes as usize),
                _ => None,
            });
        }
        room -= piece.len();
        host.write(socket, piece);
    }
    assert_eq!(receiver.join().unwrap(), bytes);
}

#[test]
fn a_client_whose_broker_does_not_read_is_held_back_by_tcp() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    client.set_nonblocking(true).unwrap();
    let bytes = noise(64 * 1024);
    let mut written = 0;
    let mut last = Instant::now();
    // Until nothing was taken for a while: the card holds its bound, the kernel's buffers theirs.
    while last.elapsed() < Duration::from_millis(500) {
        match std::io::Write::write(&mut client, &bytes) {
            Ok(taken) => {
                written += taken;
                last = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(written < 64 << 20, "nothing holds the client back");
    }
    let mut got = 0;
    while got < WINDOW_BYTES as usize {
        got += host.until(|told| match told {
            Told::Data(of, bytes) if *of == socket => Some(bytes.len()),
            _ => None,
        });
    }
    assert_eq!(got, WINDOW_BYTES as usize);
}

#[test]
fn a_channel_full_of_many_streams_loses_nothing() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let mut clients: Vec<_> = (0..40).map(|_| host.client(address)).collect();
    let bytes = noise(WINDOW_BYTES as usize);
    // More than the channel holds, and nobody takes it yet.
    for (client, _) in &mut clients {
        write(client, &bytes);
        write(client, b"beyond the window");
    }
    for (client, _) in &clients {
        client.shutdown(Shutdown::Write).unwrap();
    }
    // One message may hold the end of the window and what is beyond it.
    let bytes = [&bytes[..], b"beyond the window"].concat();
    for (_, socket) in &clients {
        assert_eq!(host.read(*socket, bytes.len()), bytes);
        host.expect(&Told::Eof(*socket));
    }
}

#[test]
fn ends_of_both_sides_arrive_behind_the_last_byte() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    write(&mut client, b"last words");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(host.read(socket, 10), b"last words");
    host.expect(&Told::Eof(socket));
    host.write(socket, b"answer");
    host.say(&Message::Shutdown { socket, stamp: 9, how: How::Write });
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"answer");
    host.close(socket, false);
    host.expect(&Told::Close(socket));
}

#[test]
fn resets_pass_both_ways() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (client, socket) = host.client(address);
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    host.expect(&Told::Reset(socket));
    host.close(socket, false);
    let (mut client, socket) = host.client(address);
    host.write(socket, b"goodbye");
    host.close(socket, true);
    assert_eq!(read(&mut client, 7), b"goodbye");
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn options_reach_the_real_socket_and_errors_come_back() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (_client, socket) = host.client(address);
    let mut option = |level, name, action: OptionAction<'_>| {
        let request = host.request();
        host.say(&Message::Option { request, socket, level, name, action });
        let (errno, _, value) = host.reply(request);
        (errno, value)
    };
    let one = 1i32.to_ne_bytes();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
    assert_eq!(option(level, name, OptionAction::Get(4)), (0, vec![0; 4]));
    assert_eq!(option(level, name, OptionAction::Set(&one)), (0, vec![]));
    assert_eq!(option(level, name, OptionAction::Get(4)), (0, one.to_vec()));
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    assert_eq!(option(level, name, OptionAction::Set(&one)), (libc::ENOPROTOOPT, vec![]));
    let (errno, info) = option(libc::IPPROTO_TCP, libc::TCP_INFO, OptionAction::Get(232));
    assert_eq!((errno, info[0]), (0, 1), "TCP_ESTABLISHED");
}

#[test]
fn a_port_in_use_is_refused_at_bind() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (errno, _) = host.bind(SocketId(1), taken.local_addr().unwrap());
    assert_eq!(errno, libc::EADDRINUSE);
    drop(taken);
    host.listen();
}

#[test]
fn a_brokers_own_connect_reports_its_outcome() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |host: &mut Host, socket| {
        let request = host.request();
        let (session, uid, options) = (SESSION, 0, Vec::new());
        host.say(&Message::Connect { request, session, socket, uid, address, options });
        assert_eq!(host.reply(request).0, 0);
        host.until(|told| match told {
            Told::Connected(of, errno) if *of == socket => Some(*errno),
            _ => None,
        })
    };
    assert_eq!(connect(&mut host, SocketId(1)), 0);
    let (mut other, _) = listener.accept().unwrap();
    host.write(SocketId(1), b"out");
    assert_eq!(read(&mut other, 3), b"out");
    write(&mut other, b"back");
    assert_eq!(host.read(SocketId(1), 4), b"back");
    drop(listener);
    assert_eq!(connect(&mut host, SocketId(3)), libc::ECONNREFUSED);
}

#[test]
fn a_violation_resets_that_sessions_clients_and_no_other() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    let other = mqttshim_schema::SessionId(2);
    let request = host.request();
    host.say(&Message::Bind {
        request,
        session: other,
        socket: LISTENER,
        uid: 0,
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        options: Vec::new(),
    });
    host.write(socket, b"still here");
    assert_eq!(read(&mut client, 10), b"still here");
    // Data for a listener.
    host.say(&Message::Data { socket: LISTENER, stamp: 1, read: 0, bytes: b"x" });
    host.expect(&Told::Reset(socket));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(
        TcpStream::connect(address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused,
        "its port is free"
    );
}

#[test]
fn garbage_on_the_channel_ends_it_and_the_next_agent_is_served() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    host.write(socket, b"written before");
    host.say_bytes(b"no message at all");
    assert!(host.is_hung_up());
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"written before");
    let mut host = Host::connect(&server.path());
    host.listen_on(LISTENER, address);
    let (mut client, socket) = host.client(address);
    host.write(socket, b"again");
    assert_eq!(read(&mut client, 5), b"again");
}

#[test]
fn a_lost_agent_closes_its_clients_behind_the_last_byte_and_frees_its_ports() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    let bytes = noise(200_000);
    host.write(socket, &bytes);
    drop(host);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, bytes);
    let mut host = Host::connect(&server.path());
    eventually(|| host.bind(LISTENER, address).0 == 0);
}

#[test]
fn an_agent_that_falls_silent_is_given_up_and_the_next_is_served() {
    let server = Server::start(&[], "");
    let mut silent = Host::connect(&server.path());
    let address = silent.listen();
    let (mut client, _) = silent.client(address);
    let start = Instant::now();
    // It connects now and is answered when the first is given up.
    let mut next = Host::connect(&server.path());
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());
    next.listen_on(LISTENER, address);
}

#[test]
fn the_end_of_a_session_delivers_what_was_written() {
    let server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    host.write(socket, b"last");
    let notice = Notice::SessionEnded;
    host.say(&Message::Notice { session: SESSION, stamp: 9, what: notice, detail: "" });
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last");
}

#[test]
fn one_publish_reaches_a_thousand_subscribers_and_never_the_broker() {
    let metrics = free_port();
    let server = Server::start(&["--trust", "suback", "--metrics", &metrics.to_string()], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let mut subscribers: Vec<TcpStream> = (0..1000)
        .map(|index| {
            let (mut client, socket) = host.client(address);
            write(&mut client, &connect(index));
            assert_eq!(host.read(socket, 18), connect(index));
            host.write(socket, CONNACK);
            write(&mut client, SUBSCRIBE_A);
            assert_eq!(host.read(socket, 10), [SUBSCRIBE_A, PINGREQ].concat());
            host.write(socket, &[SUBACK, PINGRESP].concat());
            assert_eq!(read(&mut client, 9), [CONNACK, SUBACK].concat());
            client
        })
        .collect();
    let (mut publisher, socket) = host.client(address);
    write(&mut publisher, &connect(9999));
    host.read(socket, 18);
    host.write(socket, CONNACK);
    read(&mut publisher, 4);
    for round in 0..20u8 {
        write(&mut publisher, &[0x30, 0x04, 0x00, 0x01, b'a', round]);
    }
    for client in &mut subscribers {
        let expected: Vec<u8> =
            (0..20u8).flat_map(|round| [0x30, 0x04, 0x00, 0x01, b'a', round]).collect();
        assert_eq!(read(client, expected.len()), expected);
    }
    let card = "mqttshim_publish_total{decision=\"card\",reason=\"all_rules_hold\"}";
    eventually(|| metric(metrics, card) == 20.0);
    assert_eq!(metric(metrics, "mqttshim_deliveries_total{by=\"card\"}"), 20_000.0);
    assert_eq!(metric(metrics, "mqttshim_connections"), 1001.0);
}

#[test]
fn without_descriptors_clients_wait_and_are_served_when_one_is_free() {
    let metrics = free_port();
    let server = Server::start(&["--metrics", &metrics.to_string()], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (first, first_socket) = host.client(address);
    let folder = format!("/proc/{}/fd", server.pid().as_raw_nonzero());
    let open = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let highest = open.filter_map(|name| name.to_str()?.parse::<u64>().ok()).max().unwrap();
    let limit = Rlimit { current: Some(highest + 1), maximum: Some(highest + 1) };
    prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    let waiting: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Gaps below the limit may let some in; the last ones find none.
    drop(first);
    host.expect(&Told::Eof(first_socket));
    host.close(first_socket, false);
    let mut waiting = std::collections::VecDeque::from(waiting);
    while let Some(client) = waiting.pop_front() {
        let socket = host.accepted(&client);
        drop(client);
        host.expect(&Told::Eof(socket));
        host.close(socket, false);
    }
    eventually(|| metric(metrics, "mqttshim_connections") == 0.0);
    let (_client, _) = host.client(address);
}

#[test]
fn beyond_its_limit_of_sockets_a_client_waits_for_a_free_one() {
    let server = Server::start(&[], "[limits]\nsockets_max = 3");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (first, socket) = host.client(address);
    let (_second, _) = host.client(address);
    let third = TcpStream::connect(address).unwrap();
    drop(first);
    host.expect(&Told::Eof(socket));
    host.close(socket, false);
    host.accepted(&third);
}

#[test]
fn sigterm_delivers_what_is_left_and_exits_with_0() {
    let mut server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (mut client, socket) = host.client(address);
    let bytes = noise(200_000);
    host.write(socket, &bytes);
    server.signal(Signal::TERM);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, bytes);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.path().exists(), "its path is removed");
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_second_signal_does_not_wait_for_a_stalled_client() {
    let mut server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (client, socket) = host.client(address);
    stall(&mut host, &client, socket, address);
    let start = Instant::now();
    server.signal(Signal::TERM);
    eventually(|| TcpStream::connect(address).is_err());
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn a_stalled_client_holds_sigterm_up_for_five_seconds_at_most() {
    let mut server = Server::start(&[], "");
    let mut host = Host::connect(&server.path());
    let address = host.listen();
    let (client, socket) = host.client(address);
    stall(&mut host, &client, socket, address);
    let start = Instant::now();
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
    let took = start.elapsed();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(8), "{took:?}");
}

/// Writes to a client that does not read until the card itself holds bytes for it: no credit comes back any more.
fn stall(host: &mut Host, client: &TcpStream, socket: SocketId, address: SocketAddr) {
    assert_eq!(client.peer_addr().unwrap(), address);
    // Buffers of a fixed small size: the kernel does not grow them for this stream later.
    rustix::net::sockopt::set_socket_recv_buffer_size(client, 16 * 1024).unwrap();
    let request = host.request();
    let (level, name, size) = (libc::SOL_SOCKET, libc::SO_SNDBUF, 16_384i32.to_ne_bytes());
    let action = OptionAction::Set(&size);
    host.say(&Message::Option { request, socket, level, name, action });
    assert_eq!(host.reply(request).0, 0);
    let piece = noise(64 * 1024);
    let (mut room, mut written, mut quiet) = (256 * 1024, 0, 0);
    while quiet < 50 {
        while room >= piece.len() {
            host.write(socket, &piece);
            room -= piece.len();
            written += piece.len();
        }
        assert!(written < 256 << 20, "the client takes everything");
        // The card answers in its passes: after many without credit it has none to give.
        let request = host.request();
        let (level, name, action) = (libc::SOL_SOCKET, libc::SO_TYPE, OptionAction::Get(4));
        host.say(&Message::Option { request, socket, level, name, action });
        quiet += 1;
        while let Some(bytes) = host.until(|told| match told {
            Told::Credit(of, bytes) if *of == socket => Some(Some(*bytes as usize)),
            Told::Reply(of, ..) if *of == request => Some(None),
            _ => None,
        }) {
            room += bytes;
            quiet = 0;
        }
    }
}
