//! Our own TCP/IP against the kernel's, as Wireshark sees it from the client's end: on a clean link the card sends nothing twice,
//! loses nothing, and no checksum of its is wrong.
//!
//! `MQTTSHIM_TEST_LONG=1` makes ten thousand short connections instead of one thousand.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::capture::{Capture, Recording};
use mqttshim_integration::echo::Echo;
use mqttshim_integration::namespace::{CARD, INTERFACE, Link, Namespace};
use mqttshim_integration::{Broker, BrokerSetup, Card, Folder, Process, needs};

const ADDRESSES: [&str; 2] = ["10.77.0.1", "fd77::1"];
const FROM_CARD: &str = "(ip.src == 10.77.0.1 || ipv6.src == fd77::1)";
/// What must not be among what the card sent. Of a frame that is doubted, the whole line is shown.
const FAULTS: &str = "(tcp.analysis.retransmission || tcp.analysis.fast_retransmission || \
    tcp.analysis.spurious_retransmission || tcp.analysis.lost_segment || tcp.analysis.out_of_order || \
    tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\" || \
    icmpv6.checksum.status == \"Bad\" || _ws.malformed)";
const BULK_BYTES: u32 = 4_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(text: &str, port: u16) -> TcpStream {
    let ip: IpAddr = text.parse().unwrap();
    let stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Much both ways at once, compared.
fn bulk(text: &str, port: u16) {
    let bytes: Vec<u8> =
        (0..BULK_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let stream = connect(text, port);
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

fn short(text: &str, port: u16) {
    let mut stream = connect(text, port);
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

/// mosquitto's own clients: small messages of each QoS, and one of a megabyte.
fn mosquitto_clients(folder: &Folder, text: &str, broker: &mut Broker) {
    let port = broker.port().to_string();
    let large = folder.write("large", &"large ".repeat(170_000));
    let name = format!("reader-of-{text}");
    let mut reader = Command::new("mosquitto_sub");
    reader.args(["-h", text, "-p", &port, "-i", &name, "-t", "interop/#", "-q", "2", "-C", "4"]);
    let mut reader = Process::start(&name, folder.path(), reader.args(["-F", "%t %l"]));
    broker.process.await_log(&format!("{name} 2 interop/#"));
    let publish = |more: &[&str]| {
        let mut command = Command::new("mosquitto_pub");
        let status = command.args(["-h", text, "-p", &port]).args(more).status().unwrap();
        assert!(status.success(), "mosquitto_pub {more:?}");
    };
    for qos in ["0", "1", "2"] {
        publish(&["-t", "interop/small", "-q", qos, "-m", "hello"]);
    }
    publish(&["-t", "interop/large", "-q", "1", "-f", &large.display().to_string()]);
    assert!(reader.await_end().success());
    let said = reader.log();
    assert_eq!(said.matches("interop/small 5").count(), 3, "{said}");
    assert!(said.contains("interop/large 1020000"), "{said}");
}

fn ping(text: &str) {
    for bytes in ["56", "1400"] {
        let ping = ["-c", "3", "-i", "0.1", "-W", "5", "-s", bytes, text];
        let output = Command::new("ping").args(ping).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(" 0% packet loss"), "{text}, {bytes} bytes: {said}");
    }
}

fn judge(recording: &Recording, connections: usize) {
    let faults = recording.frames(&format!("{FROM_CARD} && {FAULTS}"));
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults[..faults.len().min(20)].join("\n")
    );
    let sent = recording.frames(&format!("{FROM_CARD} && tcp")).len();
    let good = recording.frames(&format!("{FROM_CARD} && tcp.checksum.status == \"Good\"")).len();
    assert_eq!(good, sent, "every checksum was looked at");
    let accepted = format!("{FROM_CARD} && tcp.flags.syn == 1 && tcp.flags.ack == 1");
    let accepted = recording.frames(&accepted).len();
    assert!(accepted >= connections, "{accepted} of {connections} connections were captured");
    eprintln!(
        "the card sent {sent} segments on {accepted} connections: none twice, none lost, every checksum good"
    );
}

fn wireshark_finds_no_fault_in_what_the_card_sends(link: Link) {
    needs!("mosquitto", "mosquitto_pub", "mosquitto_sub", "python3", "ping", "dumpcap", "tshark");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let port = link.port();
    let more = ["--stack", "smoltcp", "--port", &port, "--address", CARD[0], "--address", CARD[1]];
    let card = Card::start_with(&folder, &more);
    let echo = Echo::start(&folder, &card);
    let setup = BrokerSetup {
        session: Some(card.session()),
        is_everywhere: true,
        config: "log_type all\n",
        ..BrokerSetup::default()
    };
    let mut broker = Broker::launch(&folder, &setup);
    broker.process.await_log("is served by the card");
    let connections = if std::env::var_os("MQTTSHIM_TEST_LONG").is_some() { 10_000 } else { 1_000 };
    let capture = Capture::start(&folder, INTERFACE);
    for text in ADDRESSES {
        ping(text);
        mosquitto_clients(&folder, text, &mut broker);
        bulk(text, echo.port());
    }
    for number in 0..connections {
        short(ADDRESSES[number % 2], echo.port());
    }
    judge(&capture.end(ADDRESSES[0].parse().unwrap()), connections);
}

#[test]
fn wireshark_finds_no_fault_in_what_the_card_sends_over_tap_and_a_bridge() {
    wireshark_finds_no_fault_in_what_the_card_sends(Link::Bridge);
}

#[test]
fn wireshark_finds_no_fault_in_what_the_card_sends_over_xdp() {
    wireshark_finds_no_fault_in_what_the_card_sends(Link::Veth);
}
