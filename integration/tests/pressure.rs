//! What some do to our own TCP/IP must not be felt by the others: clients that stop reading, a flood of SYNs from nowhere.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use mqttshim_integration::echo::Echo;
use mqttshim_integration::namespace::{CARD, INTERFACE, Link, Namespace};
use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, Packet, Process, Version, compiler,
    needs, procfs,
};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use socket2::{Domain, Socket, Type};

const CARD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PATIENCE: Duration = Duration::from_secs(20);

fn start(folder: &Folder, link: Link) -> Card {
    let port = link.port();
    let more = ["--stack", "smoltcp", "--port", &port, "--address", CARD[0], "--address", CARD[1]];
    Card::start_with(folder, &more)
}

fn percentile(sorted: &[Duration], of_hundred: usize) -> Duration {
    sorted[(sorted.len() * of_hundred / 100).min(sorted.len() - 1)]
}

const MEMBERS: usize = 1_000;
const TOPIC: &str = "crowd";
const PAYLOAD_BYTES: usize = 1_000;
/// Until those that do not read are full, buffers and all.
const BEFORE: u32 = 100;
const MEASURED: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(25);
/// What a client that does not read has room for.
const STALLED_RECEIVE_BYTES: usize = 4_096;
/// Of those that read, with the others stopped against with all reading.
const SLOWER_MAX: f64 = 1.5;
/// Of one that does not read: its buffers in the stack, and a thousand messages that wait, by reference.
const STALLED_BYTES_MAX: u64 = 48 * 1024 + 1_000 * 64;
/// For whatever else a process keeps.
const OTHER_BYTES_MAX: u64 = 24 * 1024 * 1024;

struct Member {
    stream: TcpStream,
    partial: Vec<u8>,
}

/// A thousand subscribers, of which every second one may stop.
struct Crowd {
    members: Vec<Member>,
    epoll: std::os::fd::OwnedFd,
    start: Instant,
    delays: Vec<Duration>,
}

impl Crowd {
    fn subscribe(port: u16, half_stops: bool) -> Crowd {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let member = |number: usize| {
            let stops = half_stops && number.is_multiple_of(2);
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            if stops {
                socket.set_recv_buffer_size(STALLED_RECEIVE_BYTES).unwrap();
            }
            let address = SocketAddr::from((CARD_ADDRESS, port));
            socket.connect_timeout(&address.into(), PATIENCE).unwrap();
            let login = Login::new(&format!("member-{number}"));
            let mut client = Client::over(socket.into(), &login).unwrap();
            client.login().unwrap();
            assert_eq!(client.subscribe(TOPIC, 0), 0);
            let stream = client.into_stream();
            stream.set_nonblocking(true).unwrap();
            // Those that could stop are read in the other run, but the delays that count are of the others.
            if !stops {
                let data = epoll::EventData::new_u64(number as u64);
                epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).unwrap();
            }
            Member { stream, partial: Vec::new() }
        };
        let members = (0..MEMBERS).map(member).collect();
        Crowd { members, epoll, start: Instant::now(), delays: Vec::new() }
    }

    /// Reads for a while.
    fn pump(&mut self, time: Duration) {
        let mut events = Vec::with_capacity(256);
        let time = time.try_into().unwrap();
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&time)).unwrap();
        for event in &events {
            let number = usize::try_from(event.data.u64()).unwrap();
            let mut chunk = [0; 16 * 1024];
            let member = &mut self.members[number];
            match member.stream.read(&mut chunk) {
                Ok(0) => panic!("member {number} lost its connection"),
                Ok(count) => member.partial.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => panic!("member {number}: {error}"),
            }
            let now = self.start.elapsed();
            while let Some((packet, used)) = Packet::decode(&member.partial, Version::V311) {
                member.partial.drain(..used);
                if let Packet::Publish(message) = packet
                    && !number.is_multiple_of(2)
                {
                    let sent = u64::from_be_bytes(*message.payload.first_chunk().unwrap());
                    self.delays.push(now.saturating_sub(Duration::from_nanos(sent)));
                }
            }
        }
    }

    /// Publishes at a steady pace while members read; returns how long each message took to each that reads all the time.
    fn run(&mut self, publisher: &mut Client, messages: u32) -> Vec<Duration> {
        self.delays.clear();
        let begin = Instant::now();
        for number in 1..=messages {
            let mut payload = (self.start.elapsed().as_nanos() as u64).to_be_bytes().to_vec();
            payload.resize(PAYLOAD_BYTES, b'.');
            publisher.publish(&Message::new(TOPIC, payload));
            let next = begin + INTERVAL * number;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                self.pump(left);
            }
        }
        let wanted = messages as usize * MEMBERS / 2;
        let deadline = Instant::now() + PATIENCE;
        while self.delays.len() < wanted {
            assert!(Instant::now() < deadline, "{} of {wanted} came", self.delays.len());
            self.pump(Duration::from_millis(10));
        }
        let mut delays = std::mem::take(&mut self.delays);
        delays.sort_unstable();
        delays
    }
}

/// How long messages took to those that read, and what the card's memory grew by.
fn delays(link: Link, half_stops: bool) -> Option<(Vec<Duration>, u64)> {
    let folder = Folder::new();
    let _namespace = Namespace::enter(link)?;
    let card = start(&folder, link);
    let setup = BrokerSetup {
        session: Some(card.session()),
        is_everywhere: true,
        ..BrokerSetup::default()
    };
    let mut broker = Broker::launch(&folder, &setup);
    broker.process.await_log("is served by the card");
    let mut crowd = Crowd::subscribe(broker.port(), half_stops);
    let address = SocketAddr::from((CARD_ADDRESS, broker.port()));
    let (mut publisher, _) = Client::connect_to(address, &Login::new("publisher"));
    let before = procfs::resident_bytes(card.pid());
    crowd.run(&mut publisher, BEFORE);
    let delays = crowd.run(&mut publisher, MEASURED);
    let grown = procfs::resident_bytes(card.pid()).saturating_sub(before);
    if half_stops {
        let stalled = MEMBERS as f64 / 2.0;
        let unsent = f64::from(MEASURED + BEFORE) * stalled;
        card.await_metrics("those that stopped are full", |it| {
            it.sum("mqttshim_deliveries_total", &["by=\"card\""]) >= unsent
        });
    }
    Some((delays, grown))
}

fn others_do_not_notice_that_half_of_a_thousand_stop_reading(link: Link) {
    needs!("mosquitto");
    let Some((alone, _)) = delays(link, false) else { return };
    let Some((beside, grown)) = delays(link, true) else { return };
    let [all, half] = [&alone, &beside].map(|it| percentile(it, 99));
    eprintln!(
        "all read: p50 {:?}, p99 {all:?}; half stopped: p50 {:?}, p99 {half:?}; the card grew by {} KiB",
        percentile(&alone, 50),
        percentile(&beside, 50),
        grown / 1024
    );
    assert!(half.as_secs_f64() <= all.as_secs_f64() * SLOWER_MAX, "{half:?} against {all:?}");
    let bound = OTHER_BYTES_MAX + STALLED_BYTES_MAX * MEMBERS as u64 / 2;
    assert!(grown <= bound, "the card grew by {grown} bytes, {bound} are allowed");
}

#[test]
fn others_do_not_notice_that_half_of_a_thousand_stop_reading_over_tap() {
    others_do_not_notice_that_half_of_a_thousand_stop_reading(Link::Tap);
}

#[test]
fn others_do_not_notice_that_half_of_a_thousand_stop_reading_over_xdp() {
    others_do_not_notice_that_half_of_a_thousand_stop_reading(Link::Veth);
}

const SYNS: u32 = 100_000;
const FLOOD_MS: u32 = 900;
const ESTABLISHED: usize = 50;
/// What half-open connections may take of the card's memory: as many as a listener has room for, without buffers.
const HALF_OPEN_BYTES_MAX: u64 = 4_096 * 8 * 1024;
const AFTER: Duration = Duration::from_secs(1);

fn connect(port: u16) -> TcpStream {
    let address = SocketAddr::from((CARD_ADDRESS, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Asks and hears the answer; how long that took.
fn round_trip(stream: &mut TcpStream, number: u64) -> Duration {
    let start = Instant::now();
    stream.write_all(&number.to_be_bytes()).unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, number.to_be_bytes());
    start.elapsed()
}

/// The card's own address on the link, which the kernel has found by now.
fn card_mac() -> String {
    let output =
        Command::new("ip").args(["-4", "neigh", "show", &CARD_ADDRESS.to_string()]).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut words = said.split_ascii_whitespace().skip_while(|word| *word != "lladdr").skip(1);
    words.next().unwrap_or_else(|| panic!("the card has no neighbour entry: {said}")).to_owned()
}

fn a_flood_of_syns_from_nowhere_harms_nobody(link: Link) {
    needs!("cc", "python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(link) else { return };
    let card = start(&folder, link);
    let echo = Echo::start(&folder, &card);
    let flood = compiler::compile("programs/flood.c", folder.path(), &[]);
    let mut streams: Vec<TcpStream> = (0..ESTABLISHED).map(|_| connect(echo.port())).collect();
    let mut calm: Vec<Duration> =
        (0..1_000).map(|turn| round_trip(&mut streams[turn % ESTABLISHED], turn as u64)).collect();
    let before = procfs::resident_bytes(card.pid());
    let mut command = Command::new(flood);
    command.args([INTERFACE, &card_mac(), &IpAddr::V4(CARD_ADDRESS).to_string()]);
    command.args([echo.port().to_string(), SYNS.to_string(), FLOOD_MS.to_string()]);
    let mut flood = Process::start("flood", folder.path(), &mut command);
    let (mut during, mut turn, mut grown) = (Vec::new(), 0, 0);
    while flood.is_running() {
        during.push(round_trip(&mut streams[turn % ESTABLISHED], turn as u64));
        if turn.is_multiple_of(20) {
            grown = grown.max(procfs::resident_bytes(card.pid()).saturating_sub(before));
        }
        turn += 1;
    }
    let end = Instant::now();
    assert!(flood.await_end().success(), "{}", flood.log());
    let mut late = connect(echo.port());
    round_trip(&mut late, 1);
    let accepted = end.elapsed();
    for (number, stream) in streams.iter_mut().enumerate() {
        round_trip(stream, number as u64);
    }
    let all = end.elapsed();
    grown = grown.max(procfs::resident_bytes(card.pid()).saturating_sub(before));
    calm.sort_unstable();
    during.sort_unstable();
    eprintln!(
        "{}; round trips: calm p50 {:?}, p99 {:?}; during {} of them, p50 {:?}, p99 {:?}, at most {:?}; a new connection served after \
         {accepted:?}, all others after {all:?}; the card grew by {} KiB",
        flood.log().trim(),
        percentile(&calm, 50),
        percentile(&calm, 99),
        during.len(),
        percentile(&during, 50),
        percentile(&during, 99),
        during[during.len() - 1],
        grown / 1024
    );
    assert!(accepted < AFTER && all < AFTER, "{accepted:?}, {all:?}");
    assert!(during.len() > 20 && during[during.len() - 1] < AFTER, "{} round trips", during.len());
    assert!(grown <= HALF_OPEN_BYTES_MAX, "the card grew by {grown} bytes");
}

#[test]
fn a_flood_of_syns_from_nowhere_harms_nobody_over_tap() {
    a_flood_of_syns_from_nowhere_harms_nobody(Link::Tap);
}

#[test]
fn a_flood_of_syns_from_nowhere_harms_nobody_over_xdp() {
    a_flood_of_syns_from_nowhere_harms_nobody(Link::Veth);
}
