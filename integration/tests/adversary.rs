//! Somebody who may not publish says, byte for byte, what another one says who may, while a subscriber does not read: the card must
//! not learn from it that both may. On mosquitto, and on an aedes that lets each message in after a time of its own.
//! `MQTTSHIM_TRIES=n` plays more, `MQTTSHIM_TRY_SEED=n` from another seed.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use mqttshim_integration::differential::{Brand, Rng};
use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, Server, needs,
};

const RULES: &str = "user honest\ntopic write t\nuser denied\ntopic read other\nuser reader\ntopic read t\nuser stalled\ntopic read t\n";
const TRIES: u64 = 300;
/// Tries between two that fill the way to the subscriber that does not read.
const TRIES_PER_FLOOD: u64 = 60;
/// Of these so many with somebody who does not read.
const HALF: u64 = TRIES_PER_FLOOD / 2;
/// Messages of the honest one that nobody copies, before a try.
const CALM: usize = 8;
/// More than the kernel keeps for one connection.
const FLOOD: (usize, usize) = (100, 62_000);

fn client(port: u16, user: &str) -> Client {
    Client::connect(port, &Login::new(user).credentials(user, "secret")).0
}

/// So many equal messages.
fn say(client: &mut Client, payload: &str, count: usize) {
    for _ in 0..count {
        client.publish(&Message::new("t", payload));
    }
}

/// The four clients, and the way to the one that does not read.
struct Scene {
    port: u16,
    rng: Rng,
    honest: Client,
    denied: Client,
    reader: Client,
    stalled: Option<Client>,
}

impl Scene {
    fn new(port: u16, seed: u64) -> Scene {
        let mut reader = client(port, "reader");
        reader.subscribe("t", 0);
        let (honest, denied) = (client(port, "honest"), client(port, "denied"));
        Scene { port, rng: Rng::new(seed), honest, denied, reader, stalled: None }
    }

    /// A subscriber comes that does not read, and the way to it is filled.
    fn stall(&mut self) {
        let mut stalled = client(self.port, "stalled");
        stalled.subscribe("t", 0);
        self.stalled = Some(stalled);
        say(&mut self.honest, &"x".repeat(FLOOD.1), FLOOD.0);
        self.honest.ping().unwrap();
        drop(self.reader.messages_so_far());
    }

    /// Nobody stands in the way of what the card may learn, and of this connection it has learned nothing yet.
    fn clear(&mut self) {
        self.stalled = None;
        self.honest = client(self.port, "honest");
    }

    fn calm(&mut self) {
        for at in 0..CALM {
            say(&mut self.honest, &format!("calm {at}"), 1);
            self.honest.ping().unwrap();
        }
    }

    /// Both say the same, in any order; then the denied one speaks alone.
    fn attempt(&mut self, at: u64) {
        let (payload, alone) = (format!("try {at}"), format!("denied {at}"));
        let mut said = 0;
        for _ in 0..self.rng.between(1, 4) {
            let (first, second) = (self.rng.between(0, 2), self.rng.between(1, 3));
            said += first;
            let is_denied_first = self.rng.percent(50);
            if is_denied_first {
                say(&mut self.denied, &payload, second);
            }
            say(&mut self.honest, &payload, first);
            if !is_denied_first {
                say(&mut self.denied, &payload, second);
            }
            if self.rng.percent(30) {
                self.honest.ping().unwrap();
            }
        }
        self.denied.ping().unwrap();
        say(&mut self.denied, &alone, self.rng.between(1, 3));
        self.denied.ping().unwrap();
        self.honest.ping().unwrap();
        let got = self.reader.messages_so_far();
        let of = |text: &str| got.iter().filter(|it| it.payload == text.as_bytes()).count();
        assert_eq!(of(&alone), 0, "try {at}: what is denied was delivered");
        assert_eq!(of(&payload), said, "try {at}: not as often as the honest one said it");
    }
}

#[test]
fn adversary_nothing_of_a_denied_publisher_that_copies_an_honest_one_is_delivered() {
    needs!("mosquitto");
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let tries = number("MQTTSHIM_TRIES").unwrap_or(TRIES);
    let folder = Folder::new();
    let rules = folder.write("rules", RULES);
    let card = Card::start_with(&folder, &["--trust", "observed"]);
    let config = format!("acl_file {}", rules.display());
    let session = Some(card.session());
    let setup = BrokerSetup { session, config: &config, ..BrokerSetup::default() };
    let mut broker = Broker::launch(&folder, &setup);
    broker.process.await_log("is served by the card");
    let mut scene = Scene::new(broker.port(), number("MQTTSHIM_TRY_SEED").unwrap_or(1));
    for at in 0..tries {
        match at % TRIES_PER_FLOOD {
            0 => scene.stall(),
            HALF => scene.clear(),
            _ => {}
        }
        if scene.stalled.is_none() {
            scene.calm();
        }
        scene.attempt(at);
    }
    scene.clear();
    scene.calm();
    let metrics = card.await_metrics("the card takes the honest one's", |it| it.by_card() > 0.0);
    // It takes them now; the denied one's it must not.
    scene.attempt(tries);
    let (card, broker) = (metrics.by_card(), metrics.by_broker());
    eprintln!("adversary: {tries} tries, {card} by the card, {broker} by the broker");
}

/// Those who talk on a broker whose answers prove nothing.
struct Late {
    port: u16,
    rng: Rng,
    honest: Client,
    denied: Client,
    reader: Client,
}

impl Late {
    fn new(port: u16, seed: u64) -> Late {
        let client = |name| Client::new(port, name);
        let (mut reader, denied) = (client("reader"), client("denied"));
        reader.subscribe("t", 0);
        Late { port, rng: Rng::new(seed), honest: client("honest"), denied, reader }
    }

    /// What the reader gets up to this.
    fn await_words(&mut self, words: &str) -> Vec<String> {
        let mut got = Vec::new();
        while got.last().is_none_or(|last| last != words) {
            got.push(String::from_utf8(self.reader.message().payload).unwrap());
        }
        got
    }

    fn calm(&mut self, at: u64) {
        self.honest = Client::new(self.port, "honest");
        for number in 0..CALM {
            let words = format!("calm {at} {number}");
            say(&mut self.honest, &words, 1);
            self.await_words(&words);
        }
    }

    /// Both say the same, in any order; then the denied one speaks alone, until the broker has dealt with it.
    fn attempt(&mut self, at: u64) {
        let (words, alone, end) =
            (format!("try {at}"), format!("denied {at}"), format!("end {at}"));
        let mut said = 0;
        for _ in 0..self.rng.between(1, 4) {
            let (first, second) = (self.rng.between(0, 2), self.rng.between(1, 3));
            said += first;
            let is_denied_first = self.rng.percent(50);
            if is_denied_first {
                say(&mut self.denied, &words, second);
            }
            say(&mut self.honest, &words, first);
            if !is_denied_first {
                say(&mut self.denied, &words, second);
            }
        }
        say(&mut self.denied, &alone, self.rng.between(1, 3));
        // Acknowledged behind all that it said before.
        self.denied.publish(&Message::new("own", end.as_str()).qos(1));
        say(&mut self.honest, &end, 1);
        let got = self.await_words(&end);
        let of = |text: &str| got.iter().filter(|it| *it == text).count();
        assert!(!got.iter().any(|it| it.starts_with("denied")), "try {at}: {got:?}");
        assert_eq!(of(&words), said, "try {at}: not as often as the honest one said it");
    }
}

#[test]
fn adversary_nothing_of_a_denied_publisher_is_delivered_where_only_copies_prove_anything() {
    if !Brand::Aedes.is_here() {
        return;
    }
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let tries = number("MQTTSHIM_TRIES").unwrap_or(TRIES);
    let folder = Folder::new();
    let card = Card::start_with(&folder, &["--trust", "observed"]);
    let server = Server::start(&folder, "aedes-denying", "on-card", Some(card.session()));
    let mut scene = Late::new(server.port(), number("MQTTSHIM_TRY_SEED").unwrap_or(1));
    for at in 0..tries {
        if at % TRIES_PER_FLOOD == 0 {
            scene.calm(at);
        }
        scene.attempt(at);
    }
    scene.calm(tries);
    let metrics = card.await_metrics("the card takes the honest one's", |it| it.by_card() > 0.0);
    scene.attempt(tries);
    let (card, broker) = (metrics.by_card(), metrics.by_broker());
    eprintln!("adversary: {tries} tries on aedes, {card} by the card, {broker} by the broker");
}
