//! Bad input and bad settings: nobody else suffers, and the message says what to do.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::mqtt::{encode_publish, packet};
use mqttshim_integration::{Agent, Broker, Card, Client, Folder, Login, Message, Process, Version};
use mqttshim_integration::{needs, paths, ports, wait};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// A connection to a socket of whole messages, with `messages` written.
#[track_caller]
fn intrude(path: &Path, messages: &[Vec<u8>]) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let family = AddressFamily::UNIX;
    let socket = rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    for message in messages {
        // The other side may hang up at any of them.
        let _ = rustix::net::send(&socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    socket
}

/// Messages no honest peer writes.
fn garbage() -> Vec<Vec<u8>> {
    let mut state = 7_u64;
    let mut noise = |bytes: usize| -> Vec<u8> {
        (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    };
    let mut all: Vec<Vec<u8>> =
        [1, 7, 8, 64, 1000, 4079, 4080, 4081, 65_000].map(&mut noise).into();
    all.extend([vec![], vec![0; 64], vec![0xff; 4080]]);
    all
}

#[test]
fn garbage_on_the_session_path_ends_that_session_only() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut client = Client::new(broker.port(), "bystander");
    let mut intruders = vec![intrude(card.session(), &[])];
    for message in garbage() {
        intruders.push(intrude(card.session(), &[message]));
    }
    intruders.push(intrude(card.session(), &garbage()));
    client.ping().unwrap();
    client.subscribe("still", 0);
    client.publish(&Message::new("still", "here"));
    assert_eq!(client.message().payload, b"here");
    drop(intruders);
    client.ping().unwrap();
    assert!(card.process.is_running());
    Client::new(broker.port(), "newcomer").ping().unwrap();
}

#[test]
fn garbage_on_the_channel_ends_that_channel_only() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (mut agent, mut card) = Agent::start(&folder);
    let mut broker = Broker::on_card(&folder, agent.session());
    agent.process.kill();
    let channel = folder.join("channel.sock");
    for message in garbage() {
        drop(intrude(&channel, &[message]));
    }
    drop(intrude(&channel, &garbage()));
    assert!(card.process.is_running());
    agent.restart();
    broker.await_service();
    Client::new(broker.port(), "guest").ping().unwrap();
}

/// How a broker met some bytes.
#[derive(Debug, Eq, PartialEq)]
struct Reaction {
    answer: Vec<u8>,
    /// It hung up by itself, and not because the client did.
    hangs_up: bool,
}

/// Writes bytes, and reads to the end of the connection, which comes by itself if `must_hang_up`, or within a moment if
/// nothing is known yet, or else because the client stops.
#[track_caller]
fn reaction(port: u16, login: &Login, bytes: &[u8], must_hang_up: Option<bool>) -> Reaction {
    let mut client = Client::begin(port, login).unwrap();
    client.write(bytes).unwrap();
    let patience = match must_hang_up {
        Some(true) => wait::PATIENCE,
        None => Duration::from_millis(150),
        Some(false) => Duration::from_millis(1),
    };
    let stream = client.stream();
    let mut answer = Vec::new();
    let hangs_up = read_to_end(stream, patience, &mut answer);
    if !hangs_up {
        // It waits for more: it gets the end.
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(stream, wait::PATIENCE, &mut answer), "it never hangs up");
    }
    Reaction { answer, hangs_up }
}

/// Whether the end came. A reset is one: some bytes were not read by the broker.
fn read_to_end(mut stream: &TcpStream, patience: Duration, answer: &mut Vec<u8>) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    match stream.read_to_end(answer) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn malformed_mqtt_meets_the_brokers_own_reaction() {
    needs!("mosquitto");
    let folder = Folder::new();
    let plain = Broker::plain(&folder);
    let card = Card::start(&folder);
    let ours = Broker::on_card(&folder, card.session());
    let publish = |topic: &str| encode_publish(&Message::new(topic, "x"), Version::V311);
    let first: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16, 3, 1, 0, 200, 1, 0],
        vec![0; 64],
        vec![0xff; 64],
        packet(0x10, b"\x00\x04MQTT\x09\x02\x00\x00\x00\x01a"),
        packet(0x10, b"\x00\x04MQTT\x04\x03\x00\x00\x00\x01a"),
        packet(0x10, b"\x00\x04MQXX\x04\x02\x00\x00\x00\x01a"),
        packet(0x10, b"\x00\x04MQTT\x04\x00\x00\x00\x00\x00"),
        packet(0x10, b"\x00\x04MQTT"),
        packet(0xc0, b""),
        publish("before/connect"),
        vec![0x10],
        vec![0x10, 0xff, 0xff, 0xff, 0xff, 0x01],
        [Login::new("twice").encode(), Login::new("twice").encode()].concat(),
        Login::new("half").encode()[..9].to_vec(),
    ];
    let later: Vec<Vec<u8>> = vec![
        publish("wild/#"),
        publish(""),
        packet(0x36, b"\x00\x01a\x00\x01"),
        packet(0x32, b"\x00\x01a"),
        packet(0x30, b"\x00\xffshort"),
        packet(0x82, b"\x00\x01"),
        packet(0x82, b"\x00\x01\x00\x03a#b\x00"),
        packet(0x82, b"\x00\x01\x00\x01a\x03"),
        packet(0x80, b"\x00\x01\x00\x01a\x00"),
        packet(0x62, b"\x00\x09"),
        packet(0x40, b"\x00\x09"),
        packet(0xd0, b""),
        packet(0xf0, b""),
        packet(0x00, b""),
        vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x80],
        vec![0x30, 0x7f, 0, 1],
        [publish("fine"), vec![0xff; 10], publish("not/seen")].concat(),
        packet(0xe0, b"\x00\x00\x00"),
        packet(0x30, b"\x00\x02\xc3\x28x"),
        packet(0x30, b"\x00\x01\x00x"),
    ];
    for version in [Version::V311, Version::V5] {
        let login = Login::new("odd").version(version);
        for (streams, before) in [(&first, Vec::new()), (&later, login.encode())] {
            for bytes in streams {
                let bytes = [&before[..], bytes].concat();
                let expected = reaction(plain.port(), &login, &bytes, None);
                let got = reaction(ours.port(), &login, &bytes, Some(expected.hangs_up));
                assert_eq!(got, expected, "{version:?} {bytes:02x?}");
            }
        }
    }
}

/// Runs dpu-server to its end, which must be a failure, and returns what it said.
#[track_caller]
fn refusal(folder: &Folder, command: &mut Command) -> String {
    let mut process = Process::start("refused", folder.path(), command);
    let status = process.await_end();
    let log = process.log();
    assert!(!status.success(), "{log}");
    assert!(status.code().is_some(), "it was killed: {status}");
    log
}

fn dpu_server(session: &Path) -> Command {
    let mut command = Command::new(paths::built("dpu-server"));
    command.arg("run").arg("--session").arg(session);
    command
}

#[test]
fn a_session_path_in_use_is_refused_and_its_owner_goes_on() {
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let log = refusal(&folder, &mut dpu_server(card.session()));
    assert!(log.contains("session.sock is in use") && log.contains("--session"), "{log}");
    assert!(card.process.is_running() && card.session().exists());
    // A path that a killed one left behind is no obstacle.
    card.restart();
}

#[test]
fn a_metrics_port_in_use_is_refused() {
    let folder = Folder::new();
    let port = ports::free();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut command = dpu_server(&folder.join("s.sock"));
    let log = refusal(&folder, command.args(["--metrics", &format!("127.0.0.1:{port}")]));
    assert!(log.contains(&port.to_string()) && log.contains("in use"), "{log}");
    assert!(!folder.join("s.sock").exists(), "the session path is left behind");
}

#[test]
fn a_session_path_without_permission_is_refused() {
    if !needs::is_root() {
        return;
    }
    let folder = Folder::new();
    let closed = folder.join("closed");
    std::fs::create_dir(&closed).unwrap();
    // The program must be within the other user's reach, which a build folder may not be.
    let program = folder.join("dpu-server");
    std::fs::copy(paths::built("dpu-server"), &program).unwrap();
    let mut command = Command::new(program);
    command.arg("run").arg("--session").arg(closed.join("s.sock"));
    let log = refusal(&folder, command.uid(65534).gid(65534));
    assert!(log.contains("closed") && log.contains("ermission denied"), "{log}");
}

#[test]
fn too_few_descriptors_are_refused_with_the_number_needed() {
    let folder = Folder::new();
    let mut command = Command::new("sh");
    let program = paths::built("dpu-server");
    command.args(["-c", "ulimit -n 16 && exec \"$0\" run --session \"$1\""]);
    let log = refusal(&folder, command.arg(program).arg(folder.join("s.sock")));
    assert!(log.contains("descriptors") && log.contains("ulimit"), "{log}");
}

#[test]
fn a_soft_limit_of_descriptors_is_raised() {
    let folder = Folder::new();
    let mut command = Command::new("sh");
    let program = paths::built("dpu-server");
    command.args(["-c", "ulimit -Sn 64 && exec \"$0\" run --session \"$1\""]);
    command.arg(program).arg(folder.join("s.sock"));
    let mut process = Process::start("dpu-server", folder.path(), &mut command);
    process.await_log("serving sockets_max=");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft > 64, "{line}");
    assert!(process.terminate().success());
}

#[test]
fn a_broker_whose_port_is_taken_hears_so_at_bind() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let port = ports::free();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut broker = Broker::launch(
        &folder,
        &mqttshim_integration::BrokerSetup {
            session: Some(card.session()),
            port: Some(port),
            ..Default::default()
        },
    );
    assert!(!broker.process.await_end().success());
    let log = broker.process.log();
    assert!(log.contains("Address already in use"), "{log}");
}
