//! The host's side of the schema, spoken by hand.

use std::net::Ipv4Addr;
use std::time::Duration;

use mqttshim_channel::in_process::{InProcess, pair};
use mqttshim_schema::{How, Notice, decode, encode};

use super::*;

const SESSION: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1883);
const LISTENER: Key = Key(0);
const ENDS: Ends = Ends { local: ADDRESS, peer: ADDRESS };

/// A card's end under test, and the host's end that the test plays.
struct Host {
    intercept: Intercept,
    channel: InProcess,
    now: Instant,
}

impl Host {
    /// Both Hellos exchanged; `queue` messages fit the channel.
    fn with_queue(queue: usize, window_bytes: u32) -> Host {
        let (ours, theirs) = pair(4080, queue);
        let now = Instant::now();
        let mut intercept = Intercept::default();
        intercept.plug(Box::new(ours), now);
        let mut host = Host { intercept, channel: theirs, now };
        assert!(matches!(host.told()[..], [Told::Hello]));
        let hello = Hello { window_bytes, program: "host", ..our_hello(4080) };
        assert!(host.says(&Message::Hello(hello)).is_empty());
        host
    }

    fn new() -> Host {
        Host::with_queue(64, 1000)
    }

    /// A session with a listener and `connections` of its, keys 1….
    fn with_connections(connections: u32) -> Host {
        let mut host = Host::new();
        host.bind(SESSION, 1);
        for key in 1..=connections {
            host.intercept.accepted(LISTENER, Key(key), ENDS);
        }
        host.told();
        host
    }

    #[track_caller]
    fn bind(&mut self, session: SessionId, socket: u32) {
        let inputs = self.says(&bind(session, socket));
        assert_eq!(inputs, [format!("Bind {}", session.0)]);
        self.intercept.opened(session, Token(socket), Key(socket - 1));
    }

    /// Sends one message and returns the inputs it caused, in short.
    fn says(&mut self, message: &Message<'_>) -> Vec<String> {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        self.sends(&bytes)
    }

    fn sends(&mut self, bytes: &[u8]) -> Vec<String> {
        self.channel.send(bytes).unwrap();
        let mut inputs = Vec::new();
        let mut buffer = Vec::new();
        while self.intercept.recv(self.now, &mut buffer) {
            inputs.extend(self.intercept.interpret(&buffer).map(|input| short(&input)));
        }
        inputs
    }

    /// What the host was told since last asked.
    fn told(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        let mut buffer = Vec::new();
        while self.channel.recv(&mut buffer).is_ok() {
            told.push(match decode(&buffer).unwrap() {
                Message::Hello(_) => Told::Hello,
                Message::Accepted { socket, .. } => Told::Accepted(socket.0),
                Message::Data { socket, bytes, .. } => Told::Data(socket.0, bytes.len()),
                Message::Eof { socket, .. } => Told::Eof(socket.0),
                Message::Reset { socket, .. } => Told::Reset(socket.0),
                Message::Credit { socket, bytes } => Told::Credit(socket.0, bytes),
                Message::Close { socket, .. } => Told::Close(socket.0),
                Message::Reply { errno, .. } => Told::Reply(errno),
                Message::Heartbeat { sequence } => Told::Heartbeat(sequence),
                other => panic!("{other:?}"),
            });
        }
        told
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Told {
    Hello,
    Accepted(u32),
    Data(u32, usize),
    Eof(u32),
    Reset(u32),
    Credit(u32, u32),
    Close(u32),
    Reply(i32),
    Heartbeat(u64),
}

fn short(input: &Input<'_>) -> String {
    match input {
        Input::SessionOpened { session, .. } => format!("Opened {}", session.0),
        Input::SessionEnded { session } => format!("Ended {}", session.0),
        Input::Outside { listeners, connections, name, .. } => {
            format!("Outside {listeners} {connections} {name}")
        }
        Input::PolicyEpoch { epoch, .. } => format!("Policy {epoch}"),
        Input::LibraryLoaded { path, .. } => format!("Library {path}"),
        Input::Bind { session, .. } => format!("Bind {}", session.0),
        Input::Listen { key, .. } => format!("Listen {}", key.0),
        Input::Connect { key, .. } => format!("Connect {:?}", key.map(|key| key.0)),
        Input::Option { key, .. } => format!("Option {}", key.0),
        Input::Data { key, bytes } => format!("Data {} {}", key.0, bytes.len()),
        Input::Blocked { key } => format!("Blocked {}", key.0),
        Input::Room { key } => format!("Room {}", key.0),
        Input::Shutdown { key, .. } => format!("Shutdown {}", key.0),
        Input::Close { key, unread } => format!("Close {} {unread}", key.0),
    }
}

fn bind(session: SessionId, socket: u32) -> Message<'static> {
    let (request, socket) = (RequestId(7), SocketId(socket));
    Message::Bind { request, session, socket, uid: 0, address: ADDRESS, options: Vec::new() }
}

fn data(socket: u32, bytes: &[u8]) -> Message<'_> {
    Message::Data { socket: SocketId(socket), stamp: 1, read: 0, bytes }
}

fn close(socket: u32) -> Message<'static> {
    Message::Close { socket: SocketId(socket), stamp: 1, unread: false }
}

fn notice(session: SessionId, what: Notice) -> Message<'static> {
    Message::Notice { session, stamp: 1, what, detail: "broker" }
}

#[test]
fn a_message_before_hello_ends_the_channel() {
    let (ours, mut theirs) = pair(4080, 8);
    let mut intercept = Intercept::default();
    intercept.plug(Box::new(ours), Instant::now());
    let mut bytes = Vec::new();
    encode(&Message::Heartbeat { sequence: 1 }, &mut bytes).unwrap();
    theirs.send(&bytes).unwrap();
    let mut buffer = Vec::new();
    assert!(intercept.recv(Instant::now(), &mut buffer));
    assert_eq!(intercept.interpret(&buffer), None);
    assert!(!intercept.is_plugged());
    assert_eq!(intercept.counters().violations, 1);
}

#[test]
fn bytes_that_are_no_message_end_the_channel_and_every_session_on_it() {
    let mut host = Host::with_connections(1);
    host.bind(OTHER, 3);
    assert!(host.sends(b"no message").is_empty());
    assert!(!host.intercept.is_plugged());
    let mut lost = [host.intercept.poll_lost(), host.intercept.poll_lost()];
    lost.sort();
    assert_eq!(lost, [Some(SESSION), Some(OTHER)]);
    assert_eq!(host.intercept.poll_lost(), None);
}

#[test]
fn a_stream_passes_both_ways_under_the_cards_even_number() {
    let mut host = Host::new();
    host.bind(SESSION, 1);
    host.intercept.accepted(LISTENER, Key(5), ENDS);
    assert_eq!(host.told(), [Told::Accepted(2)]);
    assert_eq!(host.says(&data(2, b"hello")), ["Data 5 5"]);
    assert_eq!(host.intercept.data(Key(5), b"world!"), 6);
    host.intercept.eof(Key(5));
    assert_eq!(host.told(), [Told::Data(2, 6), Told::Eof(2)]);
}

#[test]
fn no_more_is_sent_than_the_host_allows_and_credit_resumes_it() {
    let mut host = Host::with_connections(1);
    assert_eq!(host.intercept.data(Key(1), &[0; 1500]), 1000);
    assert_eq!(host.intercept.data(Key(1), &[0; 500]), 0);
    assert_eq!(host.told(), [Told::Data(2, 1000)]);
    let credit = Message::Credit { socket: SocketId(2), bytes: 300 };
    assert_eq!(host.says(&credit), ["Room 1"]);
    assert_eq!(host.intercept.data(Key(1), &[0; 500]), 300);
}

#[test]
fn a_large_piece_is_cut_to_the_channels_messages() {
    let mut host = Host::with_queue(64, 100_000);
    host.bind(SESSION, 1);
    host.intercept.accepted(LISTENER, Key(1), ENDS);
    host.told();
    assert_eq!(host.intercept.data(Key(1), &[0; 10_000]), 10_000);
    assert_eq!(host.told(), [Told::Data(2, 3984), Told::Data(2, 3984), Told::Data(2, 2032)]);
}

#[test]
fn a_full_channel_keeps_the_order_and_takes_no_data_until_it_has_room() {
    let mut host = Host::with_queue(4, 100_000);
    host.bind(SESSION, 1);
    host.intercept.accepted(LISTENER, Key(1), ENDS);
    // Three find room beside Accepted; the fourth waits.
    assert_eq!(host.intercept.data(Key(1), &[0; 6 * 3984]), 4 * 3984);
    assert!(host.intercept.is_blocked());
    assert!(!host.intercept.flush(host.now));
    assert!(host.intercept.is_blocked());
    host.intercept.eof(Key(1));
    host.intercept.reset(Key(1), Errno::CONNRESET);
    assert_eq!(host.intercept.data(Key(1), b"later"), 0);
    assert_eq!(host.told().len(), 4);
    assert!(host.intercept.flush(host.now));
    assert!(!host.intercept.is_blocked());
    assert_eq!(host.told(), [Told::Data(2, 3984), Told::Eof(2), Told::Reset(2)]);
}

#[test]
fn credit_comes_back_a_quarter_of_the_window_at_a_time() {
    let mut host = Host::with_connections(1);
    let quarter = WINDOW_BYTES as usize / 4;
    for _ in 0..quarter / 1024 {
        host.says(&data(2, &[0; 1024]));
        host.intercept.drained(Key(1), 1023);
    }
    assert_eq!(host.told(), []);
    host.intercept.drained(Key(1), quarter / 1024);
    assert_eq!(host.told(), [Told::Credit(2, WINDOW_BYTES / 4)]);
}

#[test]
fn credit_that_found_the_channel_full_follows_when_it_has_room() {
    let mut host = Host::with_queue(2, 100_000);
    host.bind(SESSION, 1);
    host.intercept.accepted(LISTENER, Key(1), ENDS);
    host.told();
    for _ in 0..WINDOW_BYTES / 2048 {
        host.says(&data(2, &[0; 2048]));
    }
    host.intercept.data(Key(1), &[0; 2 * 3984]);
    host.intercept.eof(Key(1));
    host.intercept.drained(Key(1), WINDOW_BYTES as usize / 2);
    host.intercept.drained(Key(1), WINDOW_BYTES as usize / 2);
    host.told();
    host.intercept.flush(host.now);
    assert_eq!(host.told(), [Told::Eof(2), Told::Credit(2, WINDOW_BYTES)]);
    assert_eq!(host.says(&data(2, &[0; 2048])), ["Data 1 2048"]);
}

#[test]
fn a_full_window_is_taken_and_one_byte_more_ends_that_session_only() {
    let mut host = Host::with_connections(1);
    host.bind(OTHER, 3);
    for _ in 0..WINDOW_BYTES / 2048 {
        assert_eq!(host.says(&data(2, &[0; 2048])), ["Data 1 2048"]);
    }
    assert_eq!(host.says(&data(2, b"x")), ["Ended 1"]);
    let told = host.told();
    assert!(told.contains(&Told::Reset(2)) && told.contains(&Told::Reset(1)), "{told:?}");
    assert!(!told.contains(&Told::Reset(3)));
    // What was under way is dropped, a request is refused, the numbers wait for Close.
    assert!(host.says(&data(2, b"x")).is_empty());
    assert!(host.says(&bind(SESSION, 5)).is_empty());
    assert_eq!(host.told(), [Told::Reply(Errno::CONNABORTED.raw_os_error())]);
    assert!(host.says(&close(2)).is_empty());
    assert_eq!(host.told(), [Told::Close(2)]);
    host.intercept.accepted(Key(2), Key(9), ENDS);
    assert_eq!(host.told(), [Told::Accepted(2)]);
    assert!(host.says(&notice(SESSION, Notice::SessionEnded)).is_empty());
    assert_eq!(host.told(), [Told::Close(1)]);
    assert_eq!(host.intercept.counters().violations, 1);
}

#[test]
fn a_number_is_used_again_only_after_its_close() {
    let mut host = Host::with_connections(1);
    host.intercept.reset(Key(1), Errno::CONNRESET);
    host.intercept.accepted(LISTENER, Key(2), ENDS);
    assert_eq!(host.told(), [Told::Reset(2), Told::Accepted(4)]);
    assert_eq!(host.says(&close(2)), ["Close 1 false"]);
    host.intercept.accepted(LISTENER, Key(3), ENDS);
    assert_eq!(host.told(), [Told::Close(2), Told::Accepted(2)]);
}

#[test]
fn numbers_of_the_wrong_parity_or_in_use_end_the_session() {
    let mut host = Host::with_connections(1);
    assert_eq!(host.says(&bind(OTHER, 1)), ["Ended 2"]);
    let mut host = Host::with_connections(1);
    assert_eq!(host.says(&bind(OTHER, 6)), ["Ended 2"]);
    assert_eq!(host.says(&data(2, b"x")), ["Data 1 1"]);
}

#[test]
fn a_stream_message_for_a_listener_ends_the_session() {
    for message in [
        data(1, b"x"),
        Message::Credit { socket: SocketId(1), bytes: 1 },
        Message::Blocked { socket: SocketId(1), stamp: 1 },
        Message::Shutdown { socket: SocketId(1), stamp: 1, how: How::Write },
    ] {
        assert_eq!(Host::with_connections(1).says(&message), ["Ended 1"], "{message:?}");
    }
}

#[test]
fn data_after_the_brokers_own_end_ends_the_session() {
    let mut host = Host::with_connections(1);
    let shutdown = |how| Message::Shutdown { socket: SocketId(2), stamp: 1, how };
    assert_eq!(host.says(&shutdown(How::Read)), ["Shutdown 1"]);
    assert_eq!(host.says(&data(2, b"x")), ["Data 1 1"]);
    assert_eq!(host.says(&shutdown(How::Write)), ["Shutdown 1"]);
    assert_eq!(host.says(&data(2, b"x")), ["Ended 1"]);
}

#[test]
fn a_message_for_an_unknown_socket_is_counted_and_harms_nobody() {
    let mut host = Host::with_connections(1);
    assert!(host.says(&data(99, b"x")).is_empty());
    assert!(host.says(&data(98, b"x")).is_empty());
    assert!(host.says(&data(0, b"x")).is_empty());
    assert!(host.says(&close(98)).is_empty());
    assert_eq!(host.intercept.counters().violations, 4);
    assert_eq!(host.says(&data(2, b"x")), ["Data 1 1"]);
}

#[test]
fn a_message_that_only_the_card_sends_ends_the_channel() {
    let mut host = Host::with_connections(1);
    host.says(&Message::Eof { socket: SocketId(2), stamp: 1 });
    assert!(!host.intercept.is_plugged());
}

#[test]
fn a_newer_message_that_is_not_known_here_is_skipped() {
    let mut host = Host::with_connections(1);
    let mut bytes = Vec::new();
    encode(&Message::Heartbeat { sequence: 7 }, &mut bytes).unwrap();
    // Wherever the message's kind is: the number of a kind that nobody has defined yet.
    let newer = (0..bytes.len() - 1).find_map(|at| {
        let mut newer = bytes.clone();
        newer[at..at + 2].copy_from_slice(&0x7000u16.to_le_bytes());
        matches!(decode(&newer), Err(error) if error.is_skippable()).then_some(newer)
    });
    assert!(host.sends(&newer.unwrap()).is_empty());
    assert_eq!(host.intercept.counters().violations, 0);
    assert_eq!(host.says(&data(2, b"x")), ["Data 1 1"]);
}

#[test]
fn the_end_of_a_session_frees_all_its_numbers() {
    let mut host = Host::with_connections(2);
    assert_eq!(host.says(&notice(SESSION, Notice::SessionEnded)), ["Ended 1"]);
    assert_eq!(host.told(), [Told::Close(2), Told::Close(4), Told::Close(1)]);
    assert_eq!(host.intercept.data(Key(1), b"into the void"), 13);
    assert_eq!(host.told(), []);
    assert_eq!(host.says(&notice(SESSION, Notice::SessionOpened)), ["Opened 1"]);
}

#[test]
fn a_silent_host_is_lost_after_its_lease_and_another_may_come() {
    let mut host = Host::with_connections(1);
    for second in 1..=4 {
        host.now += Duration::from_secs(1);
        host.intercept.flush(host.now);
        assert_eq!(host.told(), [Told::Heartbeat(second)]);
    }
    host.now += Duration::from_secs(1);
    assert!(host.intercept.flush(host.now));
    assert_eq!(host.intercept.poll_lost(), Some(SESSION));
    let (ours, _theirs) = pair(4080, 8);
    host.intercept.plug(Box::new(ours), host.now);
    assert!(host.intercept.is_plugged());
}

#[test]
fn a_host_that_goes_away_is_lost_after_what_it_sent_was_taken() {
    let mut host = Host::with_connections(1);
    let mut bytes = Vec::new();
    encode(&data(2, b"last"), &mut bytes).unwrap();
    host.channel.send(&bytes).unwrap();
    drop(std::mem::replace(&mut host.channel, pair(1, 1).0));
    let mut buffer = Vec::new();
    assert!(host.intercept.recv(host.now, &mut buffer));
    assert!(matches!(host.intercept.interpret(&buffer), Some(Input::Data { bytes: b"last", .. })));
    assert!(!host.intercept.recv(host.now, &mut buffer));
    assert_eq!(host.intercept.poll_lost(), Some(SESSION));
}

#[test]
fn policy_epochs_and_loaded_libraries_reach_the_card_until_their_session_is_over() {
    let mut host = Host::new();
    let policy = |epoch| Message::PolicyChanged { session: SESSION, stamp: 1, epoch };
    assert_eq!(host.says(&policy(0)), ["Policy 0"]);
    assert_eq!(host.says(&policy(u64::MAX)), [format!("Policy {}", u64::MAX)]);
    assert_eq!(host.says(&notice(SESSION, Notice::LibraryLoaded)), ["Library broker"]);
    // A number that is not the agent's to give out ends it.
    assert_eq!(host.says(&bind(SESSION, 4)), ["Ended 1"]);
    assert!(host.says(&policy(3)).is_empty());
    assert!(host.says(&notice(SESSION, Notice::LibraryLoaded)).is_empty());
}
