//! Sessions that wait for their client: what they keep with the broker, until they end, are forgotten, or were never known.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use mqttshim_integration::{
    Broker, Card, Client, Folder, Login, Message, Version, needs, paths, wait,
};

struct House {
    _folder: Folder,
    card: Card,
    broker: Broker,
}

impl House {
    fn open(flags: &[&str]) -> House {
        let folder = Folder::new();
        let card = Card::start_with(&folder, flags);
        let broker = Broker::on_card(&folder, card.session());
        House { _folder: folder, card, broker }
    }

    fn client(&self, id: &str) -> Client {
        Client::new(self.broker.port(), id)
    }

    /// A client whose session stays, and which has subscribed to this with QoS 1.
    fn keeper(&self, id: &str, filter: &str) -> Client {
        let (mut keeper, is_present) = self.come_back(id);
        assert!(!is_present);
        assert_eq!(keeper.subscribe(filter, 1), 1);
        keeper.ping().unwrap();
        keeper
    }

    fn come_back(&self, id: &str) -> (Client, bool) {
        let login = Login::new(id).version(Version::V5).persistent();
        Client::connect(self.broker.port(), &login)
    }

    /// A client whose session ends with its connection, and which has subscribed to this.
    fn reader(&self, filter: &str) -> Client {
        let mut reader = self.client("reader");
        assert_eq!(reader.subscribe(filter, 1), 1);
        reader.ping().unwrap();
        reader
    }

    /// A publisher of whom the broker is known to take QoS 1.
    fn publisher(&self, id: &str) -> Client {
        Client::connect(self.broker.port(), &Login::new(id).version(Version::V5)).0
    }

    /// Runs `mqttshim` on this card.
    fn mqttshim(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(paths::built("mqttshim"));
        command.args(arguments).arg("--session").arg(self.card.session());
        command
    }

    /// What it prints.
    #[track_caller]
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.mqttshim(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Publishes this, and says whether the card distributed it.
    #[track_caller]
    fn is_by_card(&self, publisher: &mut Client, message: &Message) -> bool {
        let before = self.card.metrics();
        publisher.publish(message);
        let seen = self.card.await_metrics("it is counted", |it| {
            it.by_card() + it.by_broker() > before.by_card() + before.by_broker()
        });
        seen.by_card() > before.by_card()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_session_that_is_offline_keeps_its_topics_with_the_broker_until_it_is_forgotten() {
    needs!("mosquitto");
    let house = House::open(&[]);
    let keeper = house.keeper("keeper 1", "t/#");
    let mut reader = house.reader("t/#");
    let mut publisher = house.publisher("publisher");
    assert!(house.is_by_card(&mut publisher, &Message::new("t/1", "1")));
    keeper.vanish();
    wait::until("the card lists it", || {
        house.told(&["sessions"]).contains("keeper 1").then_some(())
    });
    let told = house.told(&["sessions"]);
    let line: Vec<_> = told.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        line[1..],
        ["mosquitto", "keeper", "1", "offline", "1", "in", "60", "min"][..],
        "{told}"
    );
    assert!(!house.is_by_card(&mut publisher, &Message::new("t/1", "2")));

    let output = house.mqttshim(&["sessions", "forget", "reader"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is connected"), "{}", stderr(&output));
    assert_eq!(house.told(&["sessions", "forget", "keeper 1"]), "forgot keeper 1\n");
    assert!(house.told(&["sessions"]).contains("no session waits"));
    // Behind what went to the broker an answer comes first.
    let mut other = house.publisher("other");
    assert!(house.is_by_card(&mut other, &Message::new("t/1", "3")));
    for payload in ["1", "2", "3"] {
        assert_eq!(reader.message().payload, payload.as_bytes());
    }
    // It comes back to what the broker kept, and nobody here knows what it subscribed to.
    let (_back, is_present) = house.come_back("keeper 1");
    assert!(is_present);
    assert!(!house.is_by_card(&mut other, &Message::new("t/1", "4")));
    let told = house.told(&["sessions", "--json"]);
    assert!(told.contains("\"is_known\":false") && told.contains("keeper 1"), "{told}");
}

#[test]
fn a_clean_connect_ends_a_session_and_so_does_an_expiry_that_its_goodbye_brings() {
    needs!("mosquitto");
    let house = House::open(&[]);
    let _reader = house.reader("#");
    let listed = |id: &str| house.told(&["sessions"]).contains(id);
    house.keeper("clean", "c").vanish();
    wait::until("it is offline", || listed("clean").then_some(()));
    house.client("clean").disconnect();
    wait::until("it is gone", || (!listed("clean")).then_some(()));
    // DISCONNECT with a Session Expiry Interval of 0.
    let mut goodbye = house.keeper("goodbye", "g");
    goodbye.write(&[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]).unwrap();
    let mut publisher = house.publisher("publisher");
    wait::until("it is gone", || {
        (!house.told(&["sessions", "--connected"]).contains("goodbye")).then_some(())
    });
    assert!(house.is_by_card(&mut publisher, &Message::new("g", "1")));
}

#[test]
fn only_root_and_the_servers_own_user_may_have_sessions_forgotten() {
    needs!("mosquitto");
    if !needs::is_root() {
        return;
    }
    let house = House::open(&[]);
    house.keeper("keeper", "t").vanish();
    wait::until("it is offline", || house.told(&["sessions"]).contains("keeper").then_some(()));
    let control = house.card.session().with_extension("control");
    for is_open in [false, true] {
        if is_open {
            // Even where the file's mode lets somebody in.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(&control, mode).unwrap();
        }
        for arguments in
            [&["sessions"][..], &["sessions", "forget", "keeper"], &["routes", "flush"]]
        {
            let output = house.mqttshim(arguments).uid(65_534).gid(65_534).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(stderr(&output).contains("root"), "{}", stderr(&output));
        }
    }
    assert!(house.told(&["sessions"]).contains("keeper"));
    assert_eq!(house.told(&["sessions", "forget", "--all"]), "forgot 1 session\n");
}

#[test]
fn flushed_routes_are_learned_anew() {
    needs!("mosquitto");
    let house = House::open(&["--trust", "observed", "--route-ttl", "86400"]);
    let mut reader = house.reader("t");
    let mut publisher = house.client("publisher");
    let learned =
        |house: &House| house.card.metrics().sum("mqttshim_routes", &["state=\"learned\""]);
    let mut teach = |reader: &mut Client| {
        for _ in 0..3 {
            publisher.publish(&Message::new("t", "x"));
            drop(reader.message());
            publisher.ping().unwrap();
        }
    };
    teach(&mut reader);
    wait::until("it is learned", || (learned(&house) == 1.0).then_some(()));
    assert_eq!(house.told(&["routes", "flush"]), "forgot the routes of 1 topic\n");
    wait::until("it is forgotten", || (learned(&house) == 0.0).then_some(()));
    teach(&mut reader);
    wait::until("it is learned anew", || (learned(&house) == 1.0).then_some(()));
}

#[test]
fn a_session_older_than_the_card_misses_nothing_with_qos_1() {
    needs!("mosquitto");
    let mut house = House::open(&["--older-sessions", "possible"]);
    house.keeper("keeper", "t").vanish();
    house.card.process.kill();
    house.card.restart();
    house.broker.await_service();

    let mut reader = house.reader("t");
    let mut publisher = house.publisher("publisher");
    // mosquitto keeps none with QoS 0, if it is not told to.
    assert!(house.is_by_card(&mut publisher, &Message::new("t", "0")));
    for number in 1..=20 {
        let message = Message::new("t", number.to_string()).qos(1);
        assert!(!house.is_by_card(&mut publisher, &message));
        assert_eq!(next_numbered(&mut reader, number), number.to_string());
    }
    let (mut keeper, is_present) = house.come_back("keeper");
    assert!(is_present);
    for number in 1..=20 {
        assert_eq!(keeper.message().payload, number.to_string().into_bytes());
    }
    // The card does not know what else it subscribed to.
    assert!(!house.is_by_card(&mut publisher, &Message::new("t", "unknown")));
    keeper.disconnect();
    Client::new(house.broker.port(), "keeper").disconnect();
    assert_eq!(house.told(&["sessions", "forget", "--all"]), "forgot 0 sessions\n");
    let mut other = house.publisher("other");
    // The first of them asks whether the broker has all it had for the reader acknowledged.
    wait::until("the card takes QoS 1", || {
        house.is_by_card(&mut other, &Message::new("t", "21").qos(1)).then_some(())
    });
}

/// The payload of the reader's next message with QoS 1.
fn next_numbered(reader: &mut Client, number: u32) -> String {
    let mut message = reader.message();
    if number == 1 && message.payload == b"0" {
        message = reader.message();
    }
    String::from_utf8(message.payload).unwrap()
}
