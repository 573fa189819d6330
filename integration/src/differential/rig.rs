//! A broker alone and a broker on a card, side by side, for one scenario after the other.
//!
//! After each scenario the sessions and retained messages it may have left are removed, so that the next one finds both
//! brokers as new.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::compare::compare;
use super::play::{Conversation, client_id, play};
use super::scenario::{Action, Scenario};
use crate::mqtt::{Client, Login, Message, Packet};
use crate::{Broker, BrokerSetup, Card, Folder};

/// Small answers go at once; otherwise the tests would wait for delayed acknowledgements of TCP.
const CONFIG: &str = "set_tcp_nodelay true";
/// In every other rig offline sessions get messages of QoS 0 too. mosquitto 2.0 counts these as in flight for ever, so that what is
/// delivered would depend on how many there were: hence no limit.
const QUEUE_CONFIG: &str =
    "set_tcp_nodelay true\nqueue_qos0_messages true\nmax_inflight_messages 0";
/// The broker keeps as much for a client as there is; a flood must not make the card drop what the broker would not.
const CARD_CONFIG: &str = "[limits]\noutbox_bytes_max = 33554432\n";
/// Scenarios before both brokers start afresh.
pub const SCENARIOS_PER_RIG: u64 = 100;
const PLAIN: &str = "alone";
const ON_CARD: &str = "on-card";

/// See the module.
#[derive(Debug)]
pub struct Rig {
    plain: Broker,
    on_card: Broker,
    /// The card.
    pub card: Card,
    /// Goes last: the others tell of their logs in it when a test fails.
    folder: Folder,
}

/// What a scenario came to.
#[derive(Debug)]
pub struct Outcome {
    /// What the broker alone sent.
    pub plain: Vec<Conversation>,
    /// What came through the card.
    pub on_card: Vec<Conversation>,
    /// Where they differ.
    pub differences: Vec<String>,
}

impl Rig {
    /// Starts both, configured for this seed and those up to the next multiple of [`SCENARIOS_PER_RIG`].
    ///
    /// # Panics
    /// If something does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(seed: u64) -> Rig {
        let folder = Folder::new();
        let config = if queues_qos_0(seed) { QUEUE_CONFIG } else { CONFIG };
        let setup = BrokerSetup { config, name: Some(PLAIN), ..BrokerSetup::default() };
        let plain = Broker::start(&folder, &setup);
        let card_config = format!("queue_qos0_messages = {}\n{CARD_CONFIG}", queues_qos_0(seed));
        let card_config = folder.write("card.toml", &card_config).display().to_string();
        let card = Card::start_with(&folder, &["--config", &card_config]);
        let session = Some(card.session());
        let on_card =
            Broker::start(&folder, &BrokerSetup { session, name: Some(ON_CARD), ..setup });
        Rig { plain, on_card, card, folder }
    }

    /// Plays a scenario on both at the same time, and cleans up.
    ///
    /// # Errors
    /// If a broker did not let its traces be removed.
    ///
    /// # Panics
    /// If a broker sends what is no MQTT.
    pub fn play(&self, scenario: &Scenario) -> io::Result<Outcome> {
        let run = |port: u16, name: &str| {
            let log = self.folder.join(&format!("{name}.log"));
            run(scenario, port, &log)
        };
        let (plain, on_card) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(self.on_card.port(), ON_CARD));
            let plain = run(self.plain.port(), PLAIN);
            (plain, other.join().expect("the card's broker sends MQTT"))
        });
        let (plain, on_card) = (plain?, on_card?);
        let differences = compare(scenario, &plain, &on_card);
        Ok(Outcome { plain, on_card, differences })
    }
}

/// Whether the brokers keep messages of QoS 0 for offline sessions when this seed is played.
pub(super) fn queues_qos_0(seed: u64) -> bool {
    (seed / SCENARIOS_PER_RIG) % 2 == 1
}

fn run(scenario: &Scenario, port: u16, log: &Path) -> io::Result<Vec<Conversation>> {
    let conversations = play(scenario, port, log);
    clean_up(scenario, port)?;
    Ok(conversations)
}

fn clean_up(scenario: &Scenario, port: u16) -> io::Result<()> {
    for client in 0..scenario.clients {
        leave(port, &client_id(client), &BTreeSet::new())?;
    }
    // Only now, for a will may be retained too.
    leave(port, "cleaner", &retained_topics(scenario))
}

/// Ends the session of `id`, and removes these retained messages.
fn leave(port: u16, id: &str, retained: &BTreeSet<&str>) -> io::Result<()> {
    let mut client = Client::begin(port, &Login::new(id))?;
    client.login()?;
    for topic in retained {
        client.publish(&Message::new(topic, "").qos(1).retained());
    }
    client.write(&[0xe0, 0])?;
    loop {
        match client.next_packet() {
            Ok(Packet::Publish(_) | Packet::Other { .. }) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            Err(_) => return Ok(()),
        }
    }
}

fn retained_topics(scenario: &Scenario) -> BTreeSet<&str> {
    fn collect<'a>(action: &'a Action, topics: &mut BTreeSet<&'a str>) {
        match action {
            Action::Publish(posts) => {
                let retained = posts.iter().filter(|post| post.message.is_retained);
                topics.extend(retained.map(|post| post.message.topic.as_str()));
            }
            Action::Connect { login, early, .. } => {
                topics.extend(login.will.iter().map(|will| will.topic.as_str()));
                early.iter().for_each(|action| collect(action, topics));
            }
            _ => {}
        }
    }
    let mut topics = BTreeSet::new();
    for step in scenario.groups.iter().flat_map(|group| &group.steps) {
        collect(&step.action, &mut topics);
    }
    topics
}
