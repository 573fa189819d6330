//! What happens when a part dies: the card, the broker, the agent, or a client's will to read.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use mqttshim_integration::crowd::{Crowd, payload};
use mqttshim_integration::{Agent, Broker, BrokerSetup, Card, Client, Folder, Login, Message};
use mqttshim_integration::{
    Process, Version, broker, compiler, needs, network, ports, procfs, wait,
};

/// How long the broker's CPU time is measured. One per cent of it is the bound.
const STRETCH: Duration = Duration::from_secs(3);
/// Above the idle figure.
const ONE_PER_CENT: Duration = Duration::from_millis(30);

/// A broker of its own name on the card.
fn second_broker(folder: &Folder, session: &std::path::Path) -> Broker {
    let setup = BrokerSetup {
        session: Some(session),
        name: Some("second-broker"),
        ..BrokerSetup::default()
    };
    Broker::start(folder, &setup)
}

/// The card distributes a PUBLISH of this broker.
#[track_caller]
fn assert_served(card: &Card, broker: &Broker) {
    let before = card.metrics().by_card();
    let mut subscriber = Client::new(broker.port(), "subscriber");
    assert_eq!(subscriber.subscribe("served/+", 0), 0);
    // Behind it the SUBSCRIBE is settled.
    subscriber.ping().unwrap();
    let mut publisher = Client::new(broker.port(), "publisher");
    publisher.publish(&Message::new("served/again", "yes"));
    assert_eq!(subscriber.message().payload, b"yes");
    card.await_metrics("the card distributed it", |it| it.by_card() > before);
}

#[test]
fn a_killed_card_leaves_brokers_alive_and_idle_and_its_successor_serves_them() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let mut busy = Broker::on_card(&folder, card.session());
    let mut idle = second_broker(&folder, card.session());
    let connect = |number: u32| Client::new(busy.port(), &format!("guest-{number}"));
    let guests: Vec<Client> = (0..20).map(connect).collect();
    let figure = [&busy, &idle].map(|broker| procfs::cpu_during(broker.pid(), STRETCH));

    card.process.kill();
    for mut guest in guests {
        wait::until("the client's connection ends", || guest.ping().err());
    }
    wait::until("the broker sees every connection end", || {
        let log = busy.process.log();
        let closed = |number: &u32| log.contains(&format!("Client guest-{number} closed"));
        (0..20).all(|number| closed(&number)).then_some(())
    });
    for (broker, figure) in [&busy, &idle].into_iter().zip(figure) {
        let spent = procfs::cpu_during(broker.pid(), STRETCH);
        eprintln!("a broker took {figure:?} in {STRETCH:?} with the card, {spent:?} without");
        assert!(spent <= figure + ONE_PER_CENT, "{spent:?} without a card, {figure:?} with one");
    }
    assert!(busy.process.is_running() && idle.process.is_running());

    card.restart();
    for broker in [&mut busy, &mut idle] {
        broker.await_service();
        assert_served(&card, broker);
    }
    let clients = card.metrics().sum("mqttshim_session_state", &["state=\"open\""]);
    assert!((clients - 2.0).abs() < 0.5, "{clients} brokers are served");
}

#[test]
fn a_card_may_die_and_return_many_times() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let mut broker = Broker::on_card(&folder, card.session());
    let mut descriptors = 0;
    for life in 0..6 {
        assert_served(&card, &broker);
        if life == 1 {
            // The session of the latest dead card is kept, in case a thread is still on its way out of a call.
            descriptors = procfs::descriptors(broker.pid());
        }
        card.restart();
        broker.await_service();
    }
    wait::until("the broker holds no more descriptors than after the first restart", || {
        (procfs::descriptors(broker.pid()) <= descriptors).then_some(())
    });
}

/// The small server, preloaded.
#[track_caller]
fn server(folder: &Folder, session: &std::path::Path, mode: &str) -> (Process, u16) {
    let program = compiler::compile("programs/server.c", folder.path(), &[]);
    let port = ports::free();
    let mut command = Command::new(program);
    broker::preload(&mut command, session, port);
    command.arg(mode).arg(port.to_string());
    let mut process = Process::start(mode, folder.path(), &mut command);
    process.await_log("is served by the card");
    (process, port)
}

#[test]
fn a_program_learns_of_the_cards_death_as_a_reset() {
    needs!("cc");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let (mut server, port) = server(&folder, card.session(), "read");
    let client = TcpStream::connect((network::host(), port)).unwrap();
    std::io::Write::write_all(&mut &client, b"hello").unwrap();
    server.await_log("read 5");
    card.process.kill();
    server.await_log("end ECONNRESET");
}

#[test]
fn what_a_killed_program_had_written_is_delivered_then_the_end() {
    needs!("cc");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let (mut server, port) = server(&folder, card.session(), "write");
    let mut client = TcpStream::connect((network::host(), port)).unwrap();
    client.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    // It writes until everything between it and the client, who does not read, is full.
    let mut last = String::new();
    let mut quiet_since = Instant::now();
    wait::until("the program is blocked in write", || {
        let log = server.log();
        if log != last {
            (last, quiet_since) = (log, Instant::now());
        }
        (last.contains("written") && quiet_since.elapsed() > Duration::from_millis(300))
            .then_some(())
    });
    server.kill();
    let log = server.log();
    let written = log.lines().rev().find_map(|line| line.strip_prefix("written ")).unwrap();
    let written: usize = written.parse().unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    eprintln!("{written} bytes were written, {} arrived", got.len());
    assert!(
        (written..=written + 1000).contains(&got.len()),
        "{written} written, {} came",
        got.len()
    );
}

#[test]
fn a_killed_brokers_port_is_free_at_once() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let mut first = Broker::on_card(&folder, card.session());
    let mut client = Client::new(first.port(), "guest");
    client.subscribe("guest", 0);
    first.process.kill();
    wait::until("the client's connection ends", || client.ping().err());
    // The packaged broker does not try twice: it ends where its port is taken.
    let setup = BrokerSetup {
        session: Some(card.session()),
        port: Some(first.port()),
        name: Some("next-broker"),
        ..BrokerSetup::default()
    };
    let next = Broker::start(&folder, &setup);
    assert_served(&card, &next);
    drop(next);
    // And a broker without us can have it too.
    let plain = BrokerSetup { session: None, name: Some("plain-broker"), ..setup };
    let plain = Broker::start(&folder, &plain);
    Client::new(plain.port(), "guest").ping().unwrap();
}

#[test]
fn without_a_card_the_broker_runs_on_the_kernel_after_one_warning() {
    needs!("mosquitto");
    let folder = Folder::new();
    let second = format!("listener {} 127.0.0.1", ports::free());
    let session = folder.join("nobody.sock");
    let mut broker = Broker::launch(
        &folder,
        &BrokerSetup {
            session: Some(&session),
            config: &second,
            environment: &[("MQTTSHIM_LOG", "warn")],
            ..BrokerSetup::default()
        },
    );
    broker.await_service();
    let mut client = Client::new(broker.port(), "guest");
    client.subscribe("here", 1);
    client.publish(&Message::new("here", "works").qos(1));
    assert_eq!(client.message().payload, b"works");
    let log = broker.process.log();
    let ours: Vec<&str> = log.lines().filter(|line| line.starts_with("mqttshim[")).collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    for word in ["stays with the kernel", "dpu-server run", "nobody.sock"] {
        assert!(ours[0].contains(word), "{ours:?}");
    }
}

#[test]
fn where_falling_back_is_forbidden_the_broker_says_why_it_cannot_listen() {
    needs!("mosquitto");
    let folder = Folder::new();
    let session = folder.join("nobody.sock");
    let mut broker = Broker::launch(
        &folder,
        &BrokerSetup {
            session: Some(&session),
            environment: &[("MQTTSHIM_FALLBACK", "fail")],
            ..BrokerSetup::default()
        },
    );
    let status = broker.process.await_end();
    assert!(!status.success());
    let log = broker.process.log();
    assert!(log.contains("MQTTSHIM_FALLBACK=fail") && log.contains("Network is down"), "{log}");
}

#[test]
fn a_subscriber_that_stops_reading_costs_bounded_memory_and_delays_nobody() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut stalled = Client::new(broker.port(), "stalled");
    stalled.subscribe("flood", 0);
    let mut crowd = Crowd::subscribe(broker.port(), 5, "flood");
    let mut publisher = Client::new(broker.port(), "publisher");
    let before = procfs::resident_bytes(card.pid());
    let mut slowest = Duration::ZERO;
    for burst in 0..300 {
        let start = Instant::now();
        for number in burst * 100..(burst + 1) * 100 {
            publisher.publish(&Message::new("flood", payload(number, 1024)));
        }
        crowd.await_all((burst + 1) * 100, Duration::from_secs(5)).unwrap();
        slowest = slowest.max(start.elapsed());
    }
    let grown = procfs::resident_bytes(card.pid()).saturating_sub(before);
    let dropped = card.await_metrics("copies for the stalled one are dropped", |it| {
        it.sum("mqttshim_outbox_dropped_total", &[]) > 0.0
    });
    let dropped = dropped.sum("mqttshim_outbox_dropped_total", &[]);
    eprintln!("{grown} bytes grown, {dropped} copies dropped, slowest burst of 100 {slowest:?}");
    assert!(grown <= 8 * 1024 * 1024, "dpu-server grew by {grown} bytes");
    // Thirty megabytes were published: what the stalled one did not lose waits for it, in order.
    let mut last = None;
    let kept = std::iter::from_fn(|| {
        let number = mqttshim_integration::crowd::number_of(&stalled.message().payload);
        assert!(number > last, "{number:?} after {last:?}");
        last = number;
        number.filter(|_| dropped > 0.0)
    });
    let kept = kept.take(1000).count();
    assert_eq!(kept, 1000);
    Client::new(broker.port(), "late").ping().unwrap();
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
        keeper.subscribe("kept/#", 1);
        card.restart();
        wait::until("the client's connection ends", || keeper.ping().err());
        broker.await_service();
        let mut publisher = Client::new(broker.port(), "publisher");
        publisher.publish(&Message::new("kept/while-away", "1").qos(1));
        let (mut keeper, is_present) = Client::connect(broker.port(), &login);
        assert!(is_present);
        let mut other = Client::new(broker.port(), "other");
        other.subscribe("kept/#", 0);
        for number in 2..50 {
            let qos = u8::from(number % 2 == 1);
            publisher.publish(&Message::new("kept/live", number.to_string()).qos(qos));
        }
        let number = |message: Message| -> u32 {
            String::from_utf8(message.payload).unwrap().parse().unwrap()
        };
        let got: Vec<u32> = (1..50).map(|_| number(keeper.message())).collect();
        // Each once; in order within a QoS, since QoS 1 waits for acknowledgements and QoS 0 does not.
        for qos in 0..2 {
            let of_it: Vec<u32> = got.iter().copied().filter(|number| number % 2 == qos).collect();
            let expected: Vec<u32> = (1..50).filter(|number| number % 2 == qos).collect();
            assert_eq!(of_it, expected, "{version:?}");
        }
        assert_eq!(keeper.messages_so_far(), []);
    }
}

#[test]
fn a_card_told_to_stop_delivers_what_it_took_and_exits_well() {
    needs!("mosquitto");
    let folder = Folder::new();
    let mut card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut slow = Client::new(broker.port(), "slow");
    slow.subscribe("last/words", 0);
    slow.ping().unwrap();
    let mut publisher = Client::new(broker.port(), "publisher");
    for number in 0..400 {
        publisher.publish(&Message::new("last/words", payload(number, 8 * 1024)));
    }
    card.await_metrics("the card took them", |it| it.by_card() >= 400.0);
    let metrics = card.metrics();
    assert!(metrics.sum("mqttshim_outbox_dropped_total", &[]) < 1.0, "{}", metrics.text());
    card.process.signal(rustix::process::Signal::TERM);
    for number in 0..400 {
        assert_eq!(slow.message().payload, payload(number, 8 * 1024));
    }
    assert!(slow.try_message().is_err());
    assert!(card.process.await_end().success());
    assert!(!card.session().exists(), "the session path is left behind");
}

#[test]
fn a_killed_agent_is_to_brokers_as_a_killed_card() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (mut agent, card) = Agent::start(&folder);
    let mut broker = Broker::on_card(&folder, agent.session());
    let mut client = Client::new(broker.port(), "guest");
    let figure = procfs::cpu_during(broker.pid(), STRETCH);
    agent.process.kill();
    wait::until("the client's connection ends", || client.ping().err());
    let spent = procfs::cpu_during(broker.pid(), STRETCH);
    assert!(spent <= figure + ONE_PER_CENT, "{spent:?} without an agent, {figure:?} with one");
    agent.restart();
    broker.await_service();
    assert_served(&card, &broker);
}
