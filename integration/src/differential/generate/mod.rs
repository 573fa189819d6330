//! Scenarios from seeds.
//!
//! A scenario has a flavour, drawn first: how much it uses of what. Plain ones are where the card distributes most, colourful ones
//! where it has most reasons not to. The generator keeps a rough picture of who is connected, only so that most steps mean something;
//! a wrong picture costs a step, not correctness.
//!
//! What a brand of broker cannot do is left out ([`Abilities`]). Not generated, because two runs may rightly differ or would take long: expiries of messages that run out, `$SYS`, keep-alives of
//! silent clients that time out.

mod changes;
mod posts;
mod race;
mod steps;

use super::brand::Abilities;
use super::policy::Policy;
use super::rng::Rng;
use super::scenario::{Action, Cut, Group, Scenario, Step};
use super::terms::{Terms, Variant};
use crate::mqtt::Version;

/// Bytes published while somebody does not read, and within one group, unless it is a flood.
const BYTES_MAX: usize = 300_000;

/// Scenarios in which somebody stops reading until the buffers are full.
const FLOOD_PERCENT: usize = 5;

/// Topic Names, from which each scenario takes some.
const TOPICS: [&str; 14] = [
    "a",
    "a/b",
    "a/b/c",
    "a//b",
    "/",
    "/a",
    "b",
    "b/c",
    "b/c/d",
    "c/d",
    "$dev/a",
    "é/ü",
    "a/b/",
    "x/y/z/1/2/3/4/5/6/7/8/9",
];
/// Topic Filters with wildcards.
const WILD: [&str; 14] = [
    "#", "+", "a/#", "a/+", "+/b", "a/+/c", "+/+", "/+", "/#", "b/+/d", "$dev/#", "$dev/+", "+/#",
    "x/#",
];

/// Scenarios with a client that publishes for so long that its keep-alive runs out, unless the broker hears of it.
const LONG_PERCENT: usize = 3;
/// Scenarios in which somebody who may not publish says what another one says who may.
const ECHO_PERCENT: usize = 15;
/// Scenarios in which more is sent to somebody than it takes before it acknowledges.
const CROWD_PERCENT: usize = 15;
/// Scenarios in which the card ends and comes back.
const RESTART_PERCENT: usize = 4;
/// Scenarios in which a session and the delay of a will end by time.
const LAPSE_PERCENT: usize = 3;

/// The scenario of this seed on these terms, always the same.
#[must_use]
pub fn generate(seed: u64, terms: Terms) -> Scenario {
    let mut rng = Rng::new(seed);
    let abilities = terms.brand.abilities();
    let flavour = Flavour::draw(&mut rng, seed, terms).within(&abilities);
    let clients = rng.between(3, 10);
    let mut topics: Vec<&str> = TOPICS.to_vec();
    topics.retain(|topic| abilities.has_dollar_topics || !topic.starts_with('$'));
    topics.retain(|topic| abilities.has_wide_topics || topic.is_ascii());
    while topics.len() > flavour.topics {
        topics.swap_remove(rng.below(topics.len()));
    }
    let mut generator = Generator {
        rng,
        flavour,
        abilities,
        topics,
        habit: None,
        clients: vec![Guest::default(); clients],
        policy: Policy::default(),
        next_number: 0,
        group: 0,
        stalled_bytes: 0,
        groups: Vec::new(),
    };
    generator.open();
    for _ in 0..generator.flavour.groups {
        generator.group();
    }
    generator.close();
    Scenario { seed, clients, groups: generator.groups }
}

/// How much a scenario uses of what, mostly in percent.
#[derive(Clone, Debug)]
struct Flavour {
    topics: usize,
    groups: usize,
    old_version: usize,
    v5: usize,
    wild: usize,
    shared: usize,
    persistent: usize,
    will: usize,
    retained: usize,
    above_qos_0: usize,
    sub_above_qos_0: usize,
    options: usize,
    properties: usize,
    alias: usize,
    large: usize,
    malformed: usize,
    churn: usize,
    races: usize,
    pieces: usize,
    /// Publishing again to the topic of last time.
    habit: usize,
    /// Changes of the rules.
    policies: usize,
    /// Whether somebody who may not publish says what another one says who may.
    has_echo: bool,
    /// Whether more is sent to somebody than it takes before it acknowledges.
    has_crowd: bool,
    /// Whether the card ends and comes back.
    has_restart: bool,
    /// Whether a session and the delay of a will end by time.
    has_lapse: bool,
    /// Whether a change of a role ends connections.
    is_dynamic: bool,
    /// Logging in by somebody else's name.
    other_user: usize,
    /// Whether somebody publishes for longer than its keep-alive.
    is_long: bool,
    /// Whether somebody stops reading until the buffers are full.
    has_flood: bool,
    /// Whether the broker's topics have a prefix.
    has_mount_point: bool,
    /// Percent of MQTT 5 clients with a Receive Maximum; none where it would make the brokers' queues run full.
    receive_maximum: usize,
}

impl Flavour {
    fn draw(rng: &mut Rng, seed: u64, terms: Terms) -> Flavour {
        let variant = Variant::of(seed, terms.trust);
        let is_plain = rng.percent(50);
        let mut some = |chance: usize, most: usize| {
            let chance = if is_plain { chance / 3 } else { chance };
            if rng.percent(chance) { rng.between(1, most) } else { 0 }
        };
        Flavour {
            old_version: some(30, 30),
            wild: some(70, 60),
            shared: some(25, 25),
            persistent: some(90, 70),
            will: some(75, 50),
            retained: some(60, 30),
            above_qos_0: some(80, 60),
            sub_above_qos_0: some(90, 60),
            options: some(40, 40),
            properties: some(90, 60),
            alias: some(25, 30),
            large: some(60, 15),
            malformed: some(40, 6),
            churn: some(90, 30),
            // The copies of a race are found by their topic.
            races: if variant.has_mount_point() { 0 } else { some(100, 30) },
            pieces: some(90, 60),
            policies: if variant.has_policies(terms.trust) { some(80, 15) } else { 0 },
            has_flood: rng.percent(FLOOD_PERCENT),
            has_mount_point: variant.has_mount_point(),
            has_echo: variant.has_policies(terms.trust) && rng.percent(ECHO_PERCENT),
            has_crowd: rng.percent(CROWD_PERCENT) && variant != Variant::QueuesQos0,
            has_restart: rng.percent(RESTART_PERCENT),
            has_lapse: rng.percent(LAPSE_PERCENT),
            is_dynamic: variant == Variant::Dynamic,
            other_user: if rng.percent(20) { 20 } else { 0 },
            is_long: rng.percent(LONG_PERCENT),
            receive_maximum: if variant == Variant::QueuesQos0 { 0 } else { 15 },
            habit: rng.between(20, 80),
            v5: rng.between(0, 100),
            topics: rng.between(3, 8),
            groups: rng.between(8, 36),
        }
    }

    /// Without what the broker cannot do.
    fn within(self, can: &Abilities) -> Flavour {
        let if_can = |can: bool, percent: usize| if can { percent } else { 0 };
        let has_restart = self.has_restart && can.has_restarts;
        Flavour {
            shared: if_can(can.has_shared, self.shared),
            persistent: if_can(can.has_sessions, self.persistent),
            // At a restart all clients end at once, and it would be open who gets whose will.
            will: if_can(can.has_wills && !has_restart, self.will),
            retained: if_can(can.has_retained, self.retained),
            above_qos_0: if_can(can.qos_max > 0, self.above_qos_0),
            sub_above_qos_0: if_can(can.qos_max > 0, self.sub_above_qos_0),
            malformed: if_can(can.has_malformed, self.malformed),
            alias: if_can(can.has_aliases, self.alias),
            races: if_can(can.has_races, self.races),
            policies: if_can(can.has_policies, self.policies),
            has_echo: self.has_echo && can.has_policies,
            has_crowd: self.has_crowd && can.has_late_acks && can.versions.contains(&Version::V5),
            has_flood: self.has_flood && can.has_floods,
            has_lapse: self.has_lapse && can.has_lapses,
            other_user: if_can(can.has_policies, self.other_user),
            has_restart,
            ..self
        }
    }
}

/// What the generator believes of a client.
#[derive(Clone, Debug, Default)]
struct Guest {
    is_online: bool,
    version: Option<Version>,
    is_stalled: bool,
    is_holding: bool,
    has_will: bool,
    filters: Vec<String>,
    user: usize,
}

impl Guest {
    fn can_act(&self) -> bool {
        self.is_online && !self.is_stalled
    }

    fn is_v5(&self) -> bool {
        self.version == Some(Version::V5)
    }
}

struct Generator {
    rng: Rng,
    flavour: Flavour,
    abilities: Abilities,
    /// Who published last, and what about.
    habit: Option<(usize, &'static str)>,
    topics: Vec<&'static str>,
    clients: Vec<Guest>,
    policy: Policy,
    next_number: usize,
    /// Number of the group in the making.
    group: usize,
    /// Bytes published since somebody stopped reading.
    stalled_bytes: usize,
    groups: Vec<Group>,
}

impl Generator {
    /// Everybody comes and subscribes.
    fn open(&mut self) {
        for client in 0..self.clients.len() {
            let action = self.connect(client, true);
            self.settled(client, action);
            if self.clients[client].can_act() && self.rng.percent(85) {
                let action = self.subscribe(client);
                self.settled(client, action);
            }
        }
    }

    fn group(&mut self) {
        if self.change() {
            return;
        }
        if self.rng.percent(self.flavour.races) && self.race() {
            return;
        }
        if self.rng.percent(self.flavour.habit)
            && let Some((client, topic)) = self.habit
            && self.clients[client].can_act()
        {
            let posts = self.posts_on(client, 6, topic);
            self.settled(client, Action::Publish(posts));
            return;
        }
        let client = self.rng.below(self.clients.len());
        let guest = self.clients[client].clone();
        let churn = self.flavour.churn;
        if guest.is_stalled && self.flavour.has_flood && self.flood(client) {
            return;
        }
        if guest.is_stalled {
            let action = self.resume(client);
            self.settled(client, action);
            return;
        }
        if !guest.is_online {
            if self.rng.percent(50) {
                let action = self.connect(client, false);
                self.settled(client, action);
            }
            return;
        }
        let drawn = self.rng.weighted(&[
            120,
            10 + churn,
            churn,
            churn / 2,
            churn / 2,
            churn / 3,
            churn / 3,
            self.flavour.malformed,
            3 + self.flavour.large + if self.flavour.has_flood { 60 } else { 0 },
            if self.abilities.has_late_acks { self.flavour.sub_above_qos_0 / 6 } else { 0 },
            3,
        ]);
        let action = match drawn {
            0 => Action::Publish(self.posts(client, 6)),
            1 => self.subscribe(client),
            2 => self.unsubscribe(client),
            3 if self.abilities.has_takeover => self.connect(client, false),
            3 | 4 => self.disconnect(client),
            5 => self.leave(client, Action::Drop),
            6 => self.leave(client, Action::Reset),
            7 => self.malformed(client),
            8 => self.stall(client),
            9 => self.hold_or_release(client),
            _ => Action::Ping,
        };
        self.settled(client, action);
    }

    /// Everybody reads and acknowledges again, so that all is seen.
    fn close(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].is_stalled {
                let action = self.resume(client);
                self.settled(client, action);
            }
            if self.clients[client].is_holding {
                let action = self.hold_or_release(client);
                self.settled(client, action);
            }
        }
    }

    fn settled(&mut self, client: usize, action: Action) {
        let step = self.step(client, action);
        self.push(vec![step]);
    }

    fn step(&mut self, client: usize, action: Action) -> Step {
        let cut = match self.rng.weighted(&[50, 50, self.flavour.pieces]) {
            0 => Cut::Joined,
            1 => Cut::Packets,
            _ => Cut::Pieces(self.rng.between(2, 8)),
        };
        Step { client, action, cut }
    }

    fn push(&mut self, steps: Vec<Step>) {
        self.groups.push(Group { number: self.group, change: None, steps });
        self.group += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::brand::Brand;
    use super::super::scenario::Change;
    use super::super::terms::Trust;
    use super::*;

    fn ordinary(seed: u64) -> Scenario {
        generate(seed, Terms::default())
    }

    #[test]
    fn a_seed_always_gives_the_same_scenario() {
        for seed in 0..50 {
            assert_eq!(ordinary(seed).to_string(), ordinary(seed).to_string());
        }
        assert_ne!(ordinary(1).to_string(), ordinary(2).to_string());
    }

    #[test]
    fn a_race_has_at_most_one_step_a_client() {
        let mut races = 0;
        for seed in 0..300 {
            for group in ordinary(seed).groups.iter().filter(|group| group.is_race()) {
                let mut clients: Vec<_> = group.steps.iter().map(|step| step.client).collect();
                clients.sort_unstable();
                clients.dedup();
                assert_eq!(clients.len(), group.steps.len(), "seed {seed}");
                races += 1;
            }
        }
        assert!(races > 100, "{races} races");
    }

    #[test]
    fn rules_change_only_where_the_broker_has_some_and_the_card_watches() {
        let changes = |terms: Terms| {
            let groups = (0..200).flat_map(|seed| generate(seed, terms).groups);
            groups.filter(|group| matches!(group.change, Some(Change::Policy(_)))).count()
        };
        let terms = |brand, trust| Terms { brand, trust };
        assert!(changes(terms(Brand::Mosquitto, Trust::Observed)) > 100);
        assert_eq!(changes(terms(Brand::Mosquitto, Trust::Suback)), 0);
        assert_eq!(changes(terms(Brand::Aedes, Trust::Observed)), 0);
    }
}
