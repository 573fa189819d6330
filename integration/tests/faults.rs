//! Each part dies, is missing, or misbehaves; the broker lives, nothing is lost that need not be, and service comes back by itself.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use mqttshim_integration::crowd::{Crowd, payload};
use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, Process, Version, needs, paths,
    ports, procfs, wait,
};

/// A stretch long enough to tell a spin from ten wake-ups a second.
const STRETCH: Duration = Duration::from_secs(2);
/// One per cent of a core.
const IDLE_SHARE_MAX: f64 = 0.01;

fn share(pid: u32) -> f64 {
    procfs::cpu_during(pid, STRETCH).as_secs_f64() / STRETCH.as_secs_f64()
}

/// The connection ends, whatever was still on its way.
#[track_caller]
fn await_hang_up(client: &mut Client) {
    wait::until("the connection ends", || match client.ping() {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Some(()),
        _ => None,
    });
}

/// A message goes from one new client to another.
#[track_caller]
fn assert_serves(port: u16) {
    let mut subscriber = Client::new(port, "still-here");
    assert_eq!(subscriber.subscribe("life/sign", 0), 0);
    Client::new(port, "sender").publish(&Message::new("life/sign", "yes"));
    assert_eq!(subscriber.message().payload, b"yes");
}

#[test]
fn the_broker_idles_while_the_card_is_dead_and_is_served_again_untouched() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let mut broker = Broker::on_card(&folder, card.session());
    let idle = share(broker.pid());
    let mut clients: Vec<Client> = (0..20)
        .map(|index| {
            let mut client = Client::new(broker.port(), &format!("client-{index}"));
            client.subscribe("some/+", 0);
            client
        })
        .collect();
    card.process.kill();
    clients.iter_mut().for_each(await_hang_up);
    assert!(broker.process.is_running());
    let orphaned = share(broker.pid());
    println!(
        "the broker takes {:.2} % of a core idle, {:.2} % without its card",
        idle * 100.0,
        orphaned * 100.0
    );
    assert!(orphaned <= idle + IDLE_SHARE_MAX, "{orphaned} against {idle}");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port())).is_err());
    let start = Instant::now();
    card.restart();
    broker.await_service();
    println!("served again {:?} after dpu-server was started", start.elapsed());
    assert_serves(broker.port());
    card.await_metrics("the card distributes again", |it| it.by_card() >= 1.0);
}

#[test]
fn a_broker_without_clients_idles_and_is_served_again_too() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let mut broker = Broker::on_card(&folder, card.session());
    card.process.kill();
    let orphaned = share(broker.pid());
    assert!(orphaned <= 2.0 * IDLE_SHARE_MAX, "{orphaned} of a core");
    // Twice, because the second card finds a listener that the first one's successor made.
    for _ in 0..2 {
        card.restart();
        broker.await_service();
        assert_serves(broker.port());
    }
}

#[test]
fn a_killed_broker_has_said_what_it_had_written_and_leaves_its_port_free() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let mut broker = Broker::on_card(&folder, card.session());
    let port = broker.port();
    let mut subscriber = Client::new(port, "subscriber");
    assert_eq!(subscriber.subscribe("last/words", 1), 1);
    let mut publisher = Client::new(port, "publisher");
    let large = vec![b'w'; 40_000];
    for _ in 0..20 {
        // QoS 1 goes through the broker: its PUBACK says that the copy has been written.
        publisher.publish(&Message::new("last/words", large.clone()).qos(1));
    }
    broker.process.kill();
    for _ in 0..20 {
        assert_eq!(subscriber.try_message().unwrap().payload, large);
    }
    let after = subscriber.next_packet().unwrap_err();
    assert!(
        matches!(after.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
        "{after}"
    );
    wait::until("the port is free", || ports::is_free(port).then_some(()));
    let session = Some(card.session());
    let again =
        BrokerSetup { session, port: Some(port), name: Some("again"), ..BrokerSetup::default() };
    let broker = Broker::start(&folder, &again);
    assert_serves(broker.port());
}

#[test]
fn a_broker_started_while_its_killed_predecessor_still_ends_gets_the_port() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let mut broker = Broker::on_card(&folder, card.session());
    let port = broker.port();
    for round in 0..10 {
        let _crowd = Crowd::subscribe(port, 50, "some/thing");
        broker.process.kill();
        let name = format!("broker-{round}");
        let session = Some(card.session());
        let setup =
            BrokerSetup { session, port: Some(port), name: Some(&name), ..BrokerSetup::default() };
        broker = Broker::start(&folder, &setup);
    }
    assert_serves(port);
}

#[test]
fn without_a_card_there_is_one_warning_and_the_kernels_sockets() {
    needs!("mosquitto");
    let folder = Folder::new();
    let missing = folder.join("nobody.sock");
    let environment = [("MQTTSHIM_LOG", "warn")];
    let setup = BrokerSetup {
        session: Some(&missing),
        environment: &environment,
        ..BrokerSetup::default()
    };
    let mut broker = Broker::launch(&folder, &setup);
    broker.await_service();
    assert_serves(broker.port());
    let log = broker.process.log();
    let ours: Vec<&str> = log.lines().filter(|line| line.starts_with("mqttshim[")).collect();
    assert_eq!(ours.len(), 1, "{ours:#?}");
    assert!(ours[0].contains("nobody.sock") && ours[0].contains("dpu-server run"), "{}", ours[0]);
}

#[test]
fn without_a_card_a_broker_that_insists_does_not_listen() {
    needs!("mosquitto");
    let folder = Folder::new();
    let missing = folder.join("nobody.sock");
    let environment = [("MQTTSHIM_FALLBACK", "fail"), ("MQTTSHIM_LOG", "warn")];
    let setup = BrokerSetup {
        session: Some(&missing),
        environment: &environment,
        ..BrokerSetup::default()
    };
    let mut broker = Broker::launch(&folder, &setup);
    assert!(!broker.process.await_end().success());
    assert!(broker.process.log().contains("nobody.sock"));
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port())).is_err());
}

#[test]
fn a_subscriber_that_stops_reading_costs_bounded_memory_and_delays_nobody() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut stalled = Client::new(broker.port(), "stalled");
    assert_eq!(stalled.subscribe("flood", 0), 0);
    let mut crowd = Crowd::subscribe(broker.port(), 10, "flood");
    let mut publisher = Client::new(broker.port(), "publisher");
    let before = procfs::resident_bytes(card.pid()) + procfs::resident_bytes(broker.pid());
    // 400 MB: far beyond what any buffer on the way holds.
    let mut slowest = Duration::ZERO;
    for number in 0..10_000 {
        let start = Instant::now();
        publisher.publish(&Message::new("flood", payload(number, 40_000)));
        if number % 10 == 9 {
            crowd.await_all(number + 1, Duration::from_secs(10)).unwrap();
            slowest = slowest.max(start.elapsed());
        }
    }
    card.await_metrics("the card counted what it dropped", |it| {
        it.sum("mqttshim_outbox_dropped_total", &[]) > 1_000.0
    });
    let after = procfs::resident_bytes(card.pid()) + procfs::resident_bytes(broker.pid());
    println!("memory {before} → {after}; slowest delivery to the others {slowest:?}");
    assert!(after - before < 64 * 1024 * 1024, "{before} → {after}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

#[test]
fn a_persistent_client_that_resumes_after_the_cards_restart_misses_nothing() {
    needs!("mosquitto");
    for version in [Version::V311, Version::V5] {
        let folder = Folder::new();
        let mut card = Card::start(&folder);
        let mut broker = Broker::on_card(&folder, card.session());
        let login = Login::new("keeper").version(version).persistent();
        let (mut keeper, _) = Client::connect(broker.port(), &login);
        assert_eq!(keeper.subscribe("kept/#", 1), 1);
        card.restart();
        await_hang_up(&mut keeper);
        broker.await_service();
        let (mut keeper, is_present) = Client::connect(broker.port(), &login);
        assert!(is_present);
        // A second subscriber whom the card knows: without care it would take the PUBLISH for him alone.
        let mut other = Client::new(broker.port(), "other");
        assert_eq!(other.subscribe("kept/safe", 0), 0);
        let mut publisher = Client::new(broker.port(), "publisher");
        for number in 0..50 {
            publisher.publish(&Message::new("kept/safe", payload(number, 16)));
        }
        for number in 0..50 {
            assert_eq!(keeper.message().payload, payload(number, 16), "{version:?}");
            assert_eq!(other.message().payload, payload(number, 16), "{version:?}");
        }
    }
}

/// What a server answers to bytes, and how it ends the connection.
fn reaction(port: u16, bytes: &[u8]) -> (Vec<u8>, String) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    // The server may close before it has all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let end = match stream.read_to_end(&mut answer) {
        Ok(_) => "closed".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    (answer, end)
}

#[test]
fn malformed_packets_reach_the_broker_unchanged_and_it_decides() {
    needs!("mosquitto");
    let folder = Folder::new();
    let plain = Broker::plain(&folder);
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let connect = Login::new("odd").encode();
    let after = |packet: &[u8]| [&connect[..], packet].concat();
    let odd: [(&str, Vec<u8>); 9] = [
        ("no MQTT at all", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a TLS hello", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03".to_vec()),
        ("an unknown protocol level", b"\x10\x0c\x00\x04MQTT\x09\x02\x00\x00\x00\x00".to_vec()),
        ("a fifth length byte", after(b"\x30\xff\xff\xff\xff\x01")),
        ("a wildcard in a topic", after(b"\x30\x05\x00\x03a/#")),
        ("a topic that is not UTF-8", after(b"\x30\x04\x00\x02\xc3\x28")),
        ("QoS 3", after(b"\x36\x07\x00\x01a\x00\x01xy")),
        ("a SUBSCRIBE with wrong flags", after(b"\x80\x06\x00\x01\x00\x01a\x00")),
        ("a second CONNECT", after(&connect)),
    ];
    for (what, bytes) in &odd {
        let expected = reaction(plain.port(), bytes);
        assert_eq!(reaction(broker.port(), bytes), expected, "{what}");
    }
    assert_serves(broker.port());
}

#[test]
fn garbage_on_the_session_socket_ends_that_program_only() {
    needs!("mosquitto");
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut witness = Client::new(broker.port(), "witness");
    for garbage in [&b""[..], b"x", &[0xff; 4096], &[0; 64]] {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(card.session()).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        // The agent may have hung up already.
        let _ = rustix::net::send(&socket, garbage, SendFlags::NOSIGNAL);
        rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
        let mut answer = [0; 4096];
        while let Ok((_, 1..)) =
            rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())
        {}
        witness.ping().unwrap();
    }
    assert!(card.process.is_running());
    assert_serves(broker.port());
}

#[test]
fn sigterm_flushes_and_exits_with_0() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut subscriber = Client::new(broker.port(), "subscriber");
    assert_eq!(subscriber.subscribe("farewell", 0), 0);
    let mut publisher = Client::new(broker.port(), "publisher");
    for number in 0..200 {
        publisher.publish(&Message::new("farewell", payload(number, 20_000)));
    }
    publisher.ping().unwrap();
    assert!(card.process.terminate().success());
    for number in 0..200 {
        assert_eq!(subscriber.try_message().unwrap().payload, payload(number, 20_000));
    }
}

/// Runs dpu-server with `flags` until it gives up, and returns what it said.
#[track_caller]
fn refusal(folder: &Folder, flags: &[&str], limit: Option<u64>) -> String {
    let name = format!("refused-{}", ports::free());
    let server = paths::built("dpu-server");
    let mut command = match limit {
        Some(limit) => {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={limit}:{limit}")).arg(server);
            command
        }
        None => Command::new(server),
    };
    command.arg("run").args(flags);
    let mut process = Process::start(&name, folder.path(), &mut command);
    assert!(!process.await_end().success());
    process.log()
}

#[test]
fn what_keeps_the_card_from_starting_is_said_with_what_to_do() {
    needs!("mosquitto", "prlimit");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let session = card.session().to_str().unwrap();
    let said = refusal(&folder, &["--session", session], None);
    assert!(
        said.contains("in use") && said.contains(session) && said.contains("--session"),
        "{said}"
    );

    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let metrics = taken.local_addr().unwrap().to_string();
    let own = folder.join("own/session.sock");
    let own = own.to_str().unwrap();
    let said = refusal(&folder, &["--session", own, "--metrics", &metrics], None);
    assert!(said.contains(&metrics) && said.contains("--metrics"), "{said}");

    let said = refusal(&folder, &["--session", "/proc/session.sock"], None);
    assert!(said.contains("/proc/session.sock") && said.contains("--session"), "{said}");

    let said = refusal(&folder, &["--session", own], Some(20));
    assert!(said.contains("descriptors"), "{said}");
}

#[test]
fn a_port_in_use_is_the_brokers_own_error() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let session = Some(card.session());
    let setup = BrokerSetup { session, port: Some(port), ..BrokerSetup::default() };
    let mut broker = Broker::launch(&folder, &setup);
    assert!(!broker.process.await_end().success());
    assert!(broker.process.log().contains("Address already in use"), "{}", broker.process.log());
}
