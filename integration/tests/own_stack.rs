//! A broker whose clients reach the card through TCP/IP of its own, on a TAP device, from the kernel's.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::namespace::{CARD, INTERFACE, Namespace};
use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, broker, needs, paths, ports, process,
};

const ADDRESSES: [&str; 2] = ["10.77.0.1", "fd77::1"];
const SHORT_CONNECTIONS: usize = 2_000;
const NOBODY: u32 = 65_534;

fn start(folder: &Folder) -> Card {
    let port = format!("tap:{INTERFACE}");
    let more = ["--stack", "smoltcp", "--port", &port, "--address", CARD[0], "--address", CARD[1]];
    Card::start_with(folder, &more)
}

fn address(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse::<IpAddr>().unwrap(), port)
}

/// mosquitto on the card, at all its addresses.
fn mosquitto(folder: &Folder, card: &Card) -> Broker {
    let port = ports::free();
    let setup = BrokerSetup {
        session: Some(card.session()),
        port: Some(port),
        is_everywhere: true,
        ..BrokerSetup::default()
    };
    let mut broker = Broker::launch(folder, &setup);
    broker.process.await_log("is served by the card");
    broker
}

/// A server that sends back what it gets, on the card.
fn echo(folder: &Folder, card: &Card) -> (process::Process, u16) {
    let port = ports::free();
    let script = "import socketserver\n\
        class Echo(socketserver.BaseRequestHandler):\n    \
            def handle(self):\n        \
                while data := self.request.recv(65536): self.request.sendall(data)\n\
        socketserver.ThreadingTCPServer.request_queue_size = 1000\n\
        socketserver.ThreadingTCPServer.allow_reuse_address = True\n\
        socketserver.ThreadingTCPServer.daemon_threads = True\n\
        import socket, sys\n\
        socketserver.ThreadingTCPServer.address_family = socket.AF_INET6\n\
        socketserver.ThreadingTCPServer(('::', int(sys.argv[1])), Echo).serve_forever()\n";
    let mut command = Command::new("python3");
    command.args(["-c", script, &port.to_string()]);
    broker::preload(&mut command, card.session(), port);
    let mut server = process::Process::start("echo", folder.path(), &mut command);
    server.await_log("is served by the card");
    (server, port)
}

#[test]
fn clients_of_both_ip_versions_get_what_the_card_distributes() {
    needs!("mosquitto");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter() else { return };
    let card = start(&folder);
    let broker = mosquitto(&folder, &card);
    let mut clients: Vec<Client> = (0..40)
        .map(|number| {
            let at = address(ADDRESSES[number % 2], broker.port());
            let (mut client, _) = Client::connect_to(at, &Login::new(&format!("reader-{number}")));
            assert_eq!(client.subscribe("news/#", 0), 0);
            client
        })
        .collect();
    let (mut publisher, _) =
        Client::connect_to(address(ADDRESSES[0], broker.port()), &Login::new("writer"));
    for number in 0..50_u8 {
        publisher.publish(&Message::new("news/today", vec![number; 300]));
    }
    for client in &mut clients {
        for number in 0..50_u8 {
            assert_eq!(client.message().payload, vec![number; 300]);
        }
    }
    card.await_metrics("the card distributed", |it| {
        it.sum("mqttshim_deliveries_total", &[r#"by="card""#]) >= 40.0 * 45.0
    });
    publisher.disconnect();
}

#[test]
fn bytes_come_back_as_they_were_written_both_ways_at_once() {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter() else { return };
    let card = start(&folder);
    let (_server, port) = echo(&folder, &card);
    let bytes: Vec<u8> =
        (0..8_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for text in ADDRESSES {
        let stream = TcpStream::connect(address(text, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut back = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (&stream).write_all(&bytes).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            (&stream).read_to_end(&mut back).unwrap();
        });
        assert!(back == bytes, "{text}: {} of {} bytes", back.len(), bytes.len());
    }
}

#[test]
fn thousands_of_short_connections_leave_nothing() {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter() else { return };
    let card = start(&folder);
    let (_server, port) = echo(&folder, &card);
    for number in 0..SHORT_CONNECTIONS {
        let mut stream = TcpStream::connect(address(ADDRESSES[number % 2], port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }
    card.await_metrics("every connection is gone", |it| it.sum("mqttshim_connections", &[]) == 0.0);
}

#[test]
fn a_port_nobody_listens_at_refuses_and_pings_are_answered() {
    needs!("ping");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter() else { return };
    let _card = start(&folder);
    for text in ADDRESSES {
        let refused = TcpStream::connect(address(text, 1)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{text}");
        for bytes in ["56", "1400"] {
            let ping = ["-c", "2", "-i", "0.2", "-W", "5", "-s", bytes, text];
            let output = Command::new("ping").args(ping).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(" 0% packet loss"), "{text}, {bytes} bytes: {said}");
        }
    }
}

#[test]
fn without_the_right_to_a_tap_device_the_way_that_needs_none_is_named() {
    let Some(_namespace) = Namespace::enter() else { return };
    let mut command = Command::new(paths::built("dpu-server"));
    command.args(["run", "--stack", "smoltcp", "--port", "tap:mq9", "--address", CARD[0]]);
    let output = command.arg("--session").arg("/tmp/none.sock").uid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("--stack kernel"), "{said}");
}
