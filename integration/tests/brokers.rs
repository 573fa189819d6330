//! Other unmodified programs: what they serve is the same with their sockets on the card.
//!
//! `scripts/brokers.sh` asks more of more of them, and measures.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::{
    Card, Client, Folder, Login, Message, Process, Server, needs, network, paths,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a script of `clients/` says of the broker at `port`.
#[track_caller]
fn report(folder: &Folder, script: &str, port: u16, features: &[&str]) -> String {
    let python = paths::workspace().join(".cache/python/bin/python");
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(paths::own(&format!("clients/{script}.py"))).arg(port.to_string()).args(features);
    let mut process = Process::start(&format!("{script}-{port}"), folder.path(), &mut command);
    process.await_end_within(PATIENCE);
    process.log()
}

/// Whether a file that `make deps` makes in `.cache` is there.
fn is_cached(path: &str) -> bool {
    needs::has_file(&paths::workspace().join(".cache").join(path))
}

/// A hundred subscribers, and what else a crowd asks for: the same answers, and the card distributes.
#[track_caller]
fn serves_the_same(name: &str, features: &[&str]) {
    let folder = Folder::new();
    let alone = Server::start(&folder, name, "alone", None);
    let expected = report(&folder, "crowd_client", alone.port(), features);
    drop(alone);
    let card = Card::start(&folder);
    let ours = Server::start(&folder, name, "ours", Some(card.session()));
    let got = report(&folder, "crowd_client", ours.port(), features);
    assert_eq!(got, expected, "left: on the card; right: alone");
    assert_eq!(got.matches("\"ok\": true").count(), features.len(), "{got}");
    // Of the crowd's hundred messages with QoS 0: the first may find the last subscription unsettled, and then those that follow are
    // the broker's too, for as long as it needs for the copies.
    card.await_metrics("the card distributes", |it| it.by_card() >= 50.0);
}

#[test]
fn aedes_serves_the_same_through_us() {
    needs!("node");
    if is_cached("python/.ready") && is_cached("brokers/aedes/.ready") {
        // It sends a retained message to nobody who has subscribed already, so "order" fails without us too.
        serves_the_same("aedes", &["crowd0", "crowd1", "short_lived"]);
    }
}

#[test]
fn amqtt_serves_the_same_through_us() {
    if is_cached("python/.ready") && is_cached("brokers/amqtt/.ready") {
        serves_the_same("amqtt", &["crowd0", "crowd1", "order", "short_lived"]);
    }
}

#[test]
fn mosquitto_serves_the_same_through_us() {
    needs!("mosquitto");
    if is_cached("python/.ready") {
        serves_the_same("mosquitto", &["crowd0", "crowd1", "order", "short_lived"]);
    }
}

/// One message after the other to three subscribers, each of which gets them all, in order; the card distributes what it has seen the
/// broker distribute.
#[track_caller]
fn is_observed(name: &str, login: impl Fn(&str) -> Login) {
    const MESSAGES: usize = 60;
    let folder = Folder::new();
    let card = Card::start_with(&folder, &["--trust", "observed"]);
    let ours = Server::start(&folder, name, "ours", Some(card.session()));
    let client = |id: &str| Client::connect(ours.port(), &login(id)).0;
    let mut subscribers = ["a", "b", "c"].map(client);
    for subscriber in &mut subscribers {
        subscriber.subscribe("t", 0);
    }
    let mut publisher = client("p");
    for number in 0..MESSAGES {
        publisher.publish(&Message::new("t", format!("message {number:02}")));
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.message().payload, format!("message {number:02}").as_bytes());
        }
    }
    let metrics = card
        .await_metrics("all are counted", |it| it.by_card() + it.by_broker() >= MESSAGES as f64);
    eprintln!("{name}: {} of {MESSAGES} by the card", metrics.by_card());
    assert!(metrics.by_card() >= 40.0, "{} by the card", metrics.by_card());
}

#[test]
fn what_aedes_is_seen_to_deliver_the_card_delivers() {
    needs!("node");
    if is_cached("brokers/aedes/.ready") {
        is_observed("aedes", Login::new);
    }
}

#[test]
fn what_amqtt_is_seen_to_deliver_the_card_delivers() {
    if is_cached("brokers/amqtt/.ready") {
        is_observed("amqtt", Login::new);
    }
}

#[test]
fn what_rumqttd_is_seen_to_deliver_the_card_delivers() {
    if is_here("rumqttd", &paths::workspace().join(".cache/brokers/rumqttd/bin/rumqttd")) {
        // It refuses a keep-alive of 0.
        is_observed("rumqttd", |id| Login { keep_alive_s: 60, ..Login::new(id) });
    }
}

#[test]
fn what_ejabberd_is_seen_to_deliver_the_card_delivers() {
    if is_here("ejabberd", Path::new("/usr/sbin/ejabberdctl")) {
        is_observed("ejabberd", |id| Login::new(id).credentials("guest", "guest"));
    }
}

/// Whether a broker is there that only `make brokers` installs.
fn is_here(name: &str, path: &Path) -> bool {
    let is_here = path.exists();
    if !is_here {
        eprintln!("SKIPPED: {name} is missing; run `INSTALL_ONLY=1 make brokers`");
    }
    is_here
}

/// Bytes that differ from key to key.
fn value(key: usize) -> Vec<u8> {
    (0..key * 997 % 150_000).map(|at| (at * 31 + key) as u8).collect()
}

/// Stores and reads back; each command is in the protocol of redis' own clients.
fn keep_and_give_back(port: u16) {
    let mut stream = TcpStream::connect((network::host(), port)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    for key in 0..150 {
        let (name, value) = (format!("key{key}"), value(key));
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n", name.len());
        write!(stream, "{head}${}\r\n", value.len()).unwrap();
        stream.write_all(&[&value[..], b"\r\n"].concat()).unwrap();
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n");
        write!(stream, "*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()).unwrap();
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, format!("${}\r\n", value.len()));
        let mut got = vec![0; value.len() + 2];
        answers.read_exact(&mut got).unwrap();
        assert!(got == [&value[..], b"\r\n"].concat(), "other bytes came back for {name}");
    }
}

#[test]
fn redis_gives_back_what_it_was_given_through_us() {
    needs!("redis-server");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let ours = Server::start(&folder, "redis", "ours", Some(card.session()));
    let port = ours.port();
    let clients: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || keep_and_give_back(port))).collect();
    for client in clients {
        client.join().unwrap();
    }
}

/// A file, over a connection of its own.
fn fetch(port: u16, file: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect((network::host(), port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /{file} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let head = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    answer.split_off(head + 4)
}

#[test]
fn nginx_and_its_forked_workers_serve_files_through_us() {
    needs!("nginx");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let ours = Server::start(&folder, "nginx", "ours", Some(card.session()));
    for file in ["small", "large"] {
        let expected = std::fs::read(Path::join(&folder.join("ours/files"), file)).unwrap();
        for _ in 0..10 {
            assert!(fetch(ours.port(), file) == expected, "other bytes came back for {file}");
        }
    }
}
