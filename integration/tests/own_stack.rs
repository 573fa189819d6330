//! A broker whose clients reach the card through TCP/IP of its own, on a TAP device or past the kernel's at the end of a veth pair,
//! from the kernel's.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use mqttshim_integration::echo::Echo;
use mqttshim_integration::metrics::Metrics;
use mqttshim_integration::namespace::{CARD, CARD_INTERFACE, INTERFACE, Link, Namespace};
use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, Process, needs, paths, ports, wait,
};
use mqttshim_port::xdp::Xdp;
use mqttshim_port::{Port, Receive, Transmit};
use rustix::process::Signal;

const ADDRESSES: [&str; 2] = ["10.77.0.1", "fd77::1"];
const SHORT_CONNECTIONS: usize = 2_000;
const NOBODY: u32 = 65_534;
/// More than wait at a card that stands still.
const FLOOD_FRAMES: &str = "8000";

/// Each case, on each link.
macro_rules! on_each_link {
    ($($case:ident),+ $(,)?) => {
        mod tap {
            $(#[test] fn $case() { super::$case(super::Link::Tap); })+
        }
        mod veth {
            $(#[test] fn $case() { super::$case(super::Link::Veth); })+
        }
    };
}

on_each_link!(
    clients_of_both_ip_versions_get_what_the_card_distributes,
    bytes_come_back_as_they_were_written_both_ways_at_once,
    thousands_of_short_connections_leave_nothing,
    a_port_nobody_listens_at_refuses_and_pings_are_answered,
    without_the_right_to_the_port_the_way_that_needs_none_is_named,
    frames_that_find_no_room_are_counted,
    who_speaks_to_a_card_that_was_killed_and_started_again_is_reset,
);

fn start(folder: &Folder, link: Link) -> Card {
    let port = link.port();
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

fn clients_of_both_ip_versions_get_what_the_card_distributes(link: Link) {
    needs!("mosquitto");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let card = start(&folder, link);
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

fn bytes_come_back_as_they_were_written_both_ways_at_once(link: Link) {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let card = start(&folder, link);
    let echo = Echo::start(&folder, &card);
    let port = echo.port();
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

fn thousands_of_short_connections_leave_nothing(link: Link) {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let card = start(&folder, link);
    let echo = Echo::start(&folder, &card);
    let port = echo.port();
    for number in 0..SHORT_CONNECTIONS {
        hello(ADDRESSES[number % 2], port);
    }
    card.await_metrics("every connection is gone", |it| it.sum("mqttshim_connections", &[]) == 0.0);
}

/// A short connection.
fn hello(text: &str, port: u16) {
    let mut stream = TcpStream::connect(address(text, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

fn a_port_nobody_listens_at_refuses_and_pings_are_answered(link: Link) {
    needs!("ping");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let _card = start(&folder, link);
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

fn without_the_right_to_the_port_the_way_that_needs_none_is_named(link: Link) {
    let Some(_namespace) = Namespace::enter(link) else { return };
    // Not the device that is there, which it could have been made for.
    let port = if link == Link::Tap { "tap:mq9".to_owned() } else { link.port() };
    let mut command = run_on(&port);
    let output = command.uid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("--stack kernel"), "{said}");
    if link == Link::Veth {
        assert!(said.contains("CAP_BPF") && said.contains("CAP_NET_RAW"), "{said}");
    }
}

fn frames_that_find_no_room_are_counted(link: Link) {
    needs!("ping", "python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let mut card = start(&folder, link);
    let echo = Echo::start(&folder, &card);
    let lost = |it: &Metrics| it.sum("mqttshim_frames_lost_total", &[r#"direction="in""#]);
    // It has to be known where the card is, when that stands still.
    hello(ADDRESSES[1], echo.port());
    card.await_metrics("nothing is lost yet", |it| lost(it) == 0.0);
    card.process.signal(Signal::STOP);
    let flood = ["-q", "-l", FLOOD_FRAMES, "-c", FLOOD_FRAMES, "-W", "1", ADDRESSES[1]];
    Command::new("ping").args(flood).output().unwrap();
    card.process.signal(Signal::CONT);
    card.await_metrics("what was lost is counted", |it| {
        // Numbers are told when something happens.
        hello(ADDRESSES[1], echo.port());
        lost(it) > 100.0
    });
}

fn who_speaks_to_a_card_that_was_killed_and_started_again_is_reset(link: Link) {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let mut card = start(&folder, link);
    let echo = Echo::start(&folder, &card);
    let mut streams = ADDRESSES.map(|text| TcpStream::connect(address(text, echo.port())).unwrap());
    card.process.kill();
    let _next = start(&folder, link);
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"are you there?").unwrap();
        let refused = stream.read(&mut [0; 9]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

/// A dpu-server that is expected to say why it cannot.
fn run_on(port: &str) -> Command {
    let mut command = Command::new(paths::built("dpu-server"));
    command.args(["run", "--stack", "smoltcp", "--port", port, "--address", CARD[0]]);
    command.arg("--session").arg("/tmp/none.sock");
    command
}

fn refusal(port: &str) -> String {
    let output = run_on(port).output().unwrap();
    assert!(!output.status.success(), "{port}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_interface_that_cannot_be_had_is_named_with_what_to_do() {
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let said = refusal("xdp:mq9");
    assert!(said.contains("no interface mq9"), "{said}");
    let mut card = start(&folder, Link::Veth);
    let said = refusal(&Link::Veth.port());
    assert!(
        said.contains("another dpu-server") && said.contains("ip link set dev mq1 xdp off"),
        "{said}"
    );
    card.process.kill();
    ip(&["link", "set", "dev", INTERFACE, "mtu", "1000"]);
    ip(&["link", "set", "dev", CARD_INTERFACE, "mtu", "1000"]);
    let said = refusal(&Link::Veth.port());
    assert!(said.contains("MTU of 1000"), "{said}");
}

#[test]
fn an_interface_of_one_queue_takes_the_named_rights_and_as_much_locked_memory_as_systemd_gives() {
    needs!("setpriv");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let rights = "--bounding-set=-all,+net_admin,+net_raw,+bpf";
    let program = paths::built("dpu-server");
    let session = folder.path().join("few-rights.sock");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 8192 && exec \"$@\"", "sh", "setpriv", rights]);
    command.arg(program).args(["run", "--stack", "smoltcp", "--address", CARD[0], "--port"]);
    command.arg(Link::Veth.port()).arg("--session").arg(&session);
    let mut card = Process::start("few-rights", folder.path(), &mut command);
    card.await_log("channel open");
    assert!(card.log().contains("queues=1"), "{}", card.log());
}

#[test]
fn a_program_goes_with_the_process_that_brought_it() {
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let mut card = start(&folder, Link::Veth);
    let has_program = || ip(&["link", "show", "dev", CARD_INTERFACE]).contains("xdp");
    assert!(has_program());
    card.process.kill();
    wait::until("the program is gone", || (!has_program()).then_some(()));
}

#[test]
fn a_card_whose_interface_is_taken_away_says_so_and_ends() {
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let mut card = start(&folder, Link::Veth);
    ip(&["link", "del", "dev", CARD_INTERFACE]);
    let status = card.process.await_end();
    assert!(!status.success(), "{status}");
    let said = card.process.log();
    assert!(said.contains("Network is down"), "{said}");
}

/// What is not for the card's addresses, at the interface whose frames it takes.
#[test]
fn the_kernel_keeps_what_is_its_own() {
    needs!("ping");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let _card = start(&folder, Link::Veth);
    // Link-local addresses are an interface's own, so this one is reached through the pair, in one namespace; from the other end's, without
    // which a client would take an address that is not at the pair's end alone.
    let own = |interface| {
        wait::until("an interface has its address", || {
            let told = ip(&["-6", "-o", "address", "show", "dev", interface, "scope", "link"]);
            if told.contains("tentative") {
                return None;
            }
            let (_, rest) = told.split_once("inet6 ")?;
            rest.split('/').next().map(str::to_owned)
        })
    };
    own(INTERFACE);
    let kernel = own(CARD_INTERFACE);
    let at = format!("{kernel}%{INTERFACE}");
    let output = Command::new("ping").args(["-6", "-c", "2", "-i", "0.2", "-W", "5", &at]).output();
    let said = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    assert!(said.contains(" 0% packet loss"), "{said}");
    let scope = |name| rustix::net::netdevice::name_to_index(any_socket(), name).unwrap();
    let place = |name, port| SocketAddrV6::new(kernel.parse().unwrap(), port, 0, scope(name));
    let listener = TcpListener::bind(place(CARD_INTERFACE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(place(INTERFACE, port)).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    served.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

#[test]
fn connections_come_through_all_queues_of_an_interface() {
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let queues = ["numtxqueues", "2", "numrxqueues", "2"];
    let (one, other) = (["link", "add", "mq2"], ["type", "veth", "peer", "name", "mq3"]);
    ip(&[&one[..], &queues, &other, &queues].concat());
    ip(&["address", "add", "10.79.0.2/24", "dev", "mq2"]);
    ip(&["link", "set", "mq3", "up"]);
    ip(&["link", "set", "mq2", "up"]);
    let more = ["--stack", "smoltcp", "--port", "xdp:mq3", "--address", "10.79.0.1/24"];
    let card = Card::start_with(&folder, &more);
    let said = card.process.log();
    assert!(said.contains("native=true") && said.contains("queues=2"), "{said}");
    // Each has a port, and so a queue, of its own; the second try, after a second, would take another.
    let (at, within) = (address("10.79.0.1", 1), Duration::from_millis(900));
    for _ in 0..64 {
        let refused = TcpStream::connect_timeout(&at, within).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_card_in_a_vlan_answers_what_has_its_tag_alone() {
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Veth) else { return };
    let port = Link::Veth.port();
    let more = ["--stack", "smoltcp", "--port", &port, "--address", CARD[0], "--vlan", "5"];
    let _card = Card::start_with(&folder, &more);
    assert!(finds_the_card(Some(5)));
    assert!(!finds_the_card(Some(6)));
    assert!(!finds_the_card(None));
}

/// Asks for the card from the other end, past the kernel there too, and waits a moment for its answer.
fn finds_the_card(vlan: Option<u16>) -> bool {
    let own = Ipv4Addr::new(10, 77, 0, 9);
    let mut port = Xdp::open(INTERFACE, &[own.into()], vlan).unwrap();
    let (mac, card) = (port.mac(), Ipv4Addr::new(10, 77, 0, 1));
    // RFC 826: who has it? Tell us.
    let mut request = [&[0xff; 6], &mac[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac[..]].concat();
    request.extend(own.octets());
    request.extend([0; 6]);
    request.extend(card.octets());
    let (_, transmit) = port.halves();
    transmit.frame(request.len(), |frame| frame.copy_from_slice(&request));
    transmit.kick().unwrap();
    let deadline = Instant::now() + Duration::from_secs(1);
    let mut has_answer = false;
    while !has_answer && Instant::now() < deadline {
        let (receive, _) = port.halves();
        let is_answer = |frame: &[u8]| frame[12..14] == [8, 6] && frame[28..32] == card.octets();
        receive.burst(8, |frame| has_answer |= is_answer(frame)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    has_answer
}

fn any_socket() -> UdpSocket {
    UdpSocket::bind("[::]:0").unwrap()
}

#[test]
fn frames_in_shared_memory_carry_a_fan_out_and_two_peers_one_after_the_other() {
    needs!("mosquitto");
    let folder = Folder::new();
    let port = format!("mem:{}", folder.path().join("frames").display());
    let more = ["--stack", "smoltcp", "--port", &port, "--address", "198.19.0.1/16"];
    let card = Card::start_with(&folder, &more);
    let broker = mosquitto(&folder, &card);
    for (subscribers, payload) in [("300", "64"), ("20", "60000")] {
        let target = format!("card=198.19.0.1:{},port={port}", broker.port());
        let output = Command::new(paths::built("mqttshim"))
            .args(["bench", "fanout", "--client", "wire", "--target", &target, "--rate", "50"])
            .args(["--subscribers", subscribers, "--payload", payload])
            .args(["--duration", "1", "--warmup", "0", "--slice", "0.5"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{subscribers} subscribers: {said}");
    }
    card.await_metrics("the card distributed", |it| {
        it.sum("mqttshim_deliveries_total", &[r#"by="card""#]) >= 300.0 * 45.0
    });
}
