//! Two brokers side by side for one scenario after the other: one alone, one on a card. Or both alone, which tells what the
//! broker leaves open.
//!
//! After each scenario the sessions, retained messages and rules it may have left are removed, so that the next one finds both
//! brokers as new.

use std::collections::BTreeSet;
use std::io;

use super::compare::compare;
use super::play::{Conversation, client_id, play};
use super::policy::Policy;
use super::record::Event;
use super::scenario::{Action, Change, Scenario};
use super::side::Side;
use super::terms::{Terms, Variant};
use crate::metrics::Metrics;
use crate::mqtt::{Client, Login, Message, Packet};
use crate::{Folder, wait};

const PLAIN: &str = "alone";
/// Of who cleans up: rumqttd takes nobody without.
const KEEP_ALIVE_S: u16 = 60;
const ON_CARD: &str = "on-card";
/// Looks that have to find the card's numbers the same: longer together than it takes to publish them.
const STILL: usize = 6;

/// See the module.
#[derive(Debug)]
pub struct Rig {
    first: Side,
    second: Side,
    /// Goes last: the others tell of their logs in it when a test fails.
    _folder: Folder,
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
    /// Starts a broker alone and one on a card, configured for this seed and those up to the next multiple of
    /// [`super::SCENARIOS_PER_RIG`].
    ///
    /// # Panics
    /// If something does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(terms: Terms, seed: u64) -> Rig {
        Rig::assemble(terms, true, seed)
    }

    /// Starts two brokers alone: what differs then is left open by the broker.
    ///
    /// # Panics
    /// If something does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_alone(terms: Terms, seed: u64) -> Rig {
        Rig::assemble(terms, false, seed)
    }

    #[track_caller]
    fn assemble(terms: Terms, has_card: bool, seed: u64) -> Rig {
        let folder = Folder::new();
        let side = |name, has_card| {
            Side::start(&folder, name, terms, has_card, Variant::of(seed, terms.trust))
        };
        let first = side(PLAIN, false);
        let second = side(ON_CARD, has_card);
        Rig { first, second, _folder: folder }
    }

    /// Plays a scenario on both at the same time, and cleans up.
    ///
    /// # Errors
    /// If a broker did not let its traces be removed.
    ///
    /// # Panics
    /// If a broker sends what is no MQTT.
    pub fn play(&mut self, scenario: &Scenario) -> io::Result<Outcome> {
        let Rig { first, second, .. } = self;
        let (plain, on_card) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(scenario, second));
            let plain = run(scenario, first);
            (plain, other.join().expect("the card's broker sends MQTT"))
        });
        let (plain, on_card) = (plain?, on_card?);
        let differences = compare(scenario, &plain, &on_card);
        Ok(Outcome { plain, on_card, differences })
    }

    /// Copies the card dropped so far.
    ///
    /// # Panics
    /// If there is no card.
    #[must_use]
    pub fn dropped(&self) -> f64 {
        let card = self.second.card.as_ref().expect("a rig with a card");
        let dropped = |labels: &[&str]| card.metrics().sum("mqttshim_outbox_dropped_total", labels);
        // What a client said is too large for it is not to be sent.
        dropped(&[]) - dropped(&["maximum_packet_size"])
    }

    /// The card's numbers, when it has nothing more to do. They are published at intervals: what stays the same counts.
    ///
    /// # Panics
    /// If there is no card.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let card = self.second.card.as_ref().expect("a rig with a card");
        let (mut before, mut same) = (String::new(), 0);
        wait::until("the card's numbers stand still", || {
            let metrics = card.metrics();
            let now = metrics.text_of("mqttshim_publish_total");
            same = if now == before { same + 1 } else { 0 };
            before = now;
            (same == STILL).then_some(metrics)
        })
    }
}

impl Outcome {
    /// Whether the broker alone did not answer.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let mut events = self.plain.iter().flat_map(|conversation| &conversation.events);
        events.any(|event| matches!(event, Event::Silence(_)))
    }

    /// The conversations that the differences name.
    #[must_use]
    pub fn involved(&self) -> String {
        let mut text = String::new();
        for (name, run) in [("alone", &self.plain), ("on the card", &self.on_card)] {
            for (index, conversation) in run.iter().enumerate() {
                let label = format!("connection {index} (");
                if !self.differences.iter().any(|difference| difference.contains(&label)) {
                    continue;
                }
                text += &format!("{name}, connection {index} (client {}):\n", conversation.client);
                for event in &conversation.events {
                    text += &format!("    {event}\n");
                }
            }
        }
        text
    }
}

fn run(scenario: &Scenario, side: &mut Side) -> io::Result<Vec<Conversation>> {
    let conversations = play(scenario, side);
    clean_up(scenario, side)?;
    Ok(conversations)
}

fn clean_up(scenario: &Scenario, side: &mut Side) -> io::Result<()> {
    if scenario.groups.iter().any(|group| matches!(group.change, Some(Change::Policy(_)))) {
        side.set_policy(&Policy::default());
    }
    for client in 0..scenario.clients {
        leave(side, &client_id(client), &BTreeSet::new())?;
    }
    // Only now, for a will may be retained too.
    leave(side, "cleaner", &retained_topics(scenario))
}

/// Ends the session of `id`, and removes these retained messages.
fn leave(side: &Side, id: &str, retained: &BTreeSet<&str>) -> io::Result<()> {
    let credentials = side.brand.credentials(id);
    let login = Login { credentials, keep_alive_s: KEEP_ALIVE_S, ..Login::new(id) };
    let mut client = Client::begin(side.port(), &login)?;
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
