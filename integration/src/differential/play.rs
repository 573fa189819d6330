//! Plays a scenario against one broker.
//!
//! ```text
//! group ─► its steps are queued ─► written and read until the awaited ends came ─► PINGREQ of every client, again and
//!                                                                                  again, until a round brings no news
//! ```
//!
//! The second round proves quiet: the first one's answers say that everything sent before it has been acted upon, the second
//! one's that what followed from it has arrived. A reset has no answer; the broker's log tells when it was noticed. Every wait is bounded,
//! and one that fails is an event like any other.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::brand::Brand;
use super::encode;
use super::peer::{Ending, Peer, State};
use super::record::{Event, receive_maximum};
use super::rng::Rng;
use super::scenario::{Action, Change, Cut, Group, Scenario, Step};
use super::side::Side;
use crate::mqtt::{Login, Version};
use crate::wait;

/// For anything awaited: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing may come from a broker whose PINGRESP proves little.
const LULL: Duration = Duration::from_millis(15);
/// The same at the end of a scenario, after which nothing is seen any more.
const LAST_LULL: Duration = Duration::from_millis(250);
/// For acknowledgements of such a broker, which may have none to give.
const ACK_PATIENCE: Duration = Duration::from_secs(1);
/// Rounds of PINGREQs before a group counts as never quiet.
const ROUNDS_MAX: usize = 100;
/// One client in so many has a small window.
const SMALL_WINDOW_EVERY: usize = 4;

/// What one connection of a client received.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Whose it was.
    pub client: usize,
    /// In the order of arrival.
    pub events: Vec<Event>,
    /// Number of the group in which the connection ended.
    pub closed_in: Option<usize>,
}

/// The client identifier of a client.
#[must_use]
pub fn client_id(client: usize) -> String {
    format!("c{client:02}")
}

/// Plays `scenario` against the broker of `side`. One conversation a connection, in order.
pub(super) fn play(scenario: &Scenario, side: &mut Side) -> Vec<Conversation> {
    let mut player = Player {
        port: side.port(),
        log: side.log().cloned(),
        brand: side.brand,
        side,
        rng: Rng::new(scenario.seed),
        peers: Vec::new(),
        current: vec![None; scenario.clients],
        replaced: Vec::new(),
        resets: Vec::new(),
    };
    for group in &scenario.groups {
        player.play(group);
    }
    if player.brand.is_late() {
        player.pump_for(LAST_LULL, |_| false);
    }
    let told = |peer: &mut Peer| Conversation {
        client: peer.client,
        events: std::mem::take(&mut peer.events),
        closed_in: peer.closed_in,
    };
    let conversations = player.peers.iter_mut().map(told).collect();
    player.end();
    conversations
}

struct Player<'a> {
    port: u16,
    /// Where the broker says that it noticed a reset; `None`: it does not, and nobody resets.
    log: Option<PathBuf>,
    brand: Brand,
    side: &'a mut Side,
    /// Cuts bytes into writes.
    rng: Rng,
    peers: Vec<Peer>,
    /// The last connection of each client.
    current: Vec<Option<usize>>,
    /// Connections that another one took over, and which.
    replaced: Vec<(usize, usize)>,
    /// Connections that are being reset.
    resets: Vec<usize>,
}

impl Player<'_> {
    fn play(&mut self, group: &Group) {
        let log_bytes = self.log_bytes();
        if let Some(change) = &group.change {
            self.change(change);
        }
        for step in &group.steps {
            self.begin(group, step);
        }
        self.await_ends();
        self.await_resets(log_bytes);
        self.await_quiet();
        for peer in self.peers.iter_mut().filter(|peer| peer.state == State::Closed) {
            peer.closed_in.get_or_insert(group.number);
        }
    }

    /// Ends what is still open, one connection after the other, so that sessions end in the same order on both sides.
    fn end(&mut self) {
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.is_open() {
                peer.is_stalled = false;
                peer.ending = Some(Ending::Shutdown);
                self.pump(|peers| !peers[index].is_open());
            }
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Policy(policy) => self.side.set_policy(policy),
            Change::Pause(ms) => {
                self.pump_for(Duration::from_millis(*ms), |_| false);
            }
            Change::Restart => {
                for index in 0..self.peers.len() {
                    let peer = &mut self.peers[index];
                    // What waits for one that does not read is lost with its own end, or it would be seen on one side only.
                    if peer.is_open() && (self.side.card.is_none() || peer.is_stalled) {
                        self.reset(index);
                    }
                }
                self.await_ends();
                if self.side.card.is_some() {
                    self.side.restart_card();
                    let is_over = |peers: &[Peer]| peers.iter().all(|peer| !peer.is_open());
                    self.pump(is_over);
                }
                for peer in self.peers.iter_mut().filter(|peer| peer.is_open()) {
                    peer.give_up("the end of the card's connections");
                }
            }
        }
    }

    fn reset(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.state = State::Leaving;
        // A name the broker made up cannot be found in its log.
        let is_seen = self.log.is_some() && !peer.is_anonymous;
        peer.ending = Some(if is_seen { Ending::Reset } else { Ending::Shutdown });
        if is_seen {
            self.resets.push(index);
        }
    }

    fn begin(&mut self, group: &Group, step: &Step) {
        if let Action::Connect { login, is_anonymous, user, early } = &step.action {
            let credentials = self.brand.credentials(&client_id(*user));
            let login = Login { credentials, ..login.clone() };
            self.connect(group, step, login, *is_anonymous, early);
            return;
        }
        let Some(index) = self.current[step.client] else { return };
        let peer = &mut self.peers[index];
        if peer.state != State::Live || (peer.is_stalled && !matches!(step.action, Action::Resume))
        {
            return;
        }
        match &step.action {
            Action::Stall => peer.is_stalled = true,
            Action::Resume => peer.is_stalled = false,
            Action::HoldAcks => peer.is_holding = true,
            Action::ReleaseAcks => peer.release_acks(),
            _ => {}
        }
        let packets = packets(peer, group.number, &step.action);
        match &step.action {
            Action::Disconnect { .. } => peer.state = State::Leaving,
            Action::Drop | Action::Malformed(_) => {
                peer.state = State::Leaving;
                peer.ending = Some(Ending::Shutdown);
            }
            Action::Reset => self.reset(index),
            _ => {}
        }
        self.queue(index, step.cut, packets);
    }

    fn connect(
        &mut self,
        group: &Group,
        step: &Step,
        login: Login,
        is_anonymous: bool,
        early: &[Action],
    ) {
        let client = step.client;
        let old = self.current[client].filter(|&index| self.peers[index].state == State::Live);
        if old.is_some_and(|old| is_anonymous || self.peers[old].is_anonymous) {
            return;
        }
        let id = if is_anonymous { String::new() } else { client_id(client) };
        let login = Login { id, ..login };
        let has_small_window = client % SMALL_WINDOW_EVERY == SMALL_WINDOW_EVERY - 1;
        let maximum = receive_maximum(&login.properties).filter(|_| login.version == Version::V5);
        let opened = Peer::open(self.port, client, login.version, has_small_window, maximum);
        let mut peer = opened.expect("a broker listens");
        peer.is_anonymous = is_anonymous;
        let mut bytes = vec![login.encode()];
        bytes.extend(early.iter().flat_map(|action| packets(&mut peer, group.number, action)));
        let new = self.peers.len();
        self.peers.push(peer);
        self.current[client] = Some(new);
        self.replaced.extend(old.map(|old| (old, new)));
        self.queue(new, step.cut, bytes);
    }

    fn queue(&mut self, index: usize, cut: Cut, packets: Vec<Vec<u8>>) {
        let peer = &mut self.peers[index];
        match cut {
            Cut::Spread(ms) => self.spread(index, ms, packets),
            Cut::Packets => packets.into_iter().for_each(|packet| peer.queue(packet)),
            Cut::Joined => peer.queue(packets.concat()),
            Cut::Pieces(pieces) => {
                let mut rest = packets.concat();
                for _ in 1..pieces {
                    let tail = rest.split_off(self.rng.below(rest.len() + 1));
                    peer.queue(std::mem::replace(&mut rest, tail));
                }
                peer.queue(rest);
            }
        }
    }

    fn spread(&mut self, index: usize, ms: u64, packets: Vec<Vec<u8>>) {
        for packet in packets {
            self.peers[index].queue(packet);
            self.pump_for(Duration::from_millis(ms), |_| false);
        }
    }

    /// Until everything is written, every CONNECT answered, and every connection closed that has to be.
    fn await_ends(&mut self) {
        let replaced = std::mem::take(&mut self.replaced);
        let is_open = |peers: &[Peer], index: usize| match peers[index].state {
            State::AwaitConnack | State::Leaving => true,
            State::Live => {
                replaced.iter().any(|&(old, new)| old == index && peers[new].state == State::Live)
            }
            State::Closed => false,
        };
        let is_done = |peers: &[Peer]| {
            (0..peers.len()).all(|index| !peers[index].has_output() && !is_open(peers, index))
        };
        if !self.pump(is_done) {
            for index in 0..self.peers.len() {
                if self.peers[index].has_output() || is_open(&self.peers, index) {
                    self.peers[index].give_up("an end or an answer to CONNECT");
                }
            }
        }
    }

    fn await_resets(&mut self, from: u64) {
        for index in std::mem::take(&mut self.resets) {
            let id = client_id(self.peers[index].client);
            let lines = [format!("client {id} "), format!("client {id}:"), format!("client {id},")];
            let is_noticed = || {
                let log = self.log_since(from).to_lowercase();
                lines.iter().any(|line| log.contains(line)).then_some(())
            };
            if wait::poll(PATIENCE, is_noticed).is_none() {
                self.peers[index].events.push(Event::Silence("the broker about a reset"));
            }
        }
    }

    /// A broker that answers a PINGREQ ahead of its work at least acknowledges what it has done.
    fn await_acknowledgements(&mut self) {
        let is_done = |peer: &Peer| !can_ping(peer) || peer.is_acknowledged();
        self.pump_for(ACK_PATIENCE, |peers| peers.iter().all(is_done));
        self.peers.iter_mut().for_each(Peer::forget_awaited);
    }

    fn await_quiet(&mut self) {
        if self.brand.is_late() {
            self.await_acknowledgements();
        }
        for round in 0..ROUNDS_MAX {
            let known: usize = self.peers.iter().map(|peer| peer.events.len()).sum();
            for peer in self.peers.iter_mut().filter(|peer| can_ping(peer)) {
                peer.ping();
            }
            let is_answered =
                |peer: &Peer| !can_ping(peer) || (peer.pings_out == 0 && !peer.has_output());
            if !self.pump(|peers| peers.iter().all(is_answered)) {
                for peer in self.peers.iter_mut().filter(|peer| !is_answered(peer)) {
                    peer.give_up("PINGRESP");
                }
            }
            let events = |peers: &[Peer]| peers.iter().map(|peer| peer.events.len()).sum::<usize>();
            if round > 0 && events(&self.peers) == known {
                // Of the others nothing proves that no more is on its way.
                if !self.brand.is_late() || !self.pump_for(LULL, |peers| events(peers) > known) {
                    return;
                }
            }
        }
        self.peers.iter_mut().for_each(|peer| peer.events.push(Event::Silence("quiet")));
    }

    /// Writes and reads until `is_done`; whether that came in time.
    fn pump(&mut self, is_done: impl Fn(&[Peer]) -> bool) -> bool {
        self.pump_for(PATIENCE, is_done)
    }

    fn pump_for(&mut self, patience: Duration, is_done: impl Fn(&[Peer]) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        while !is_done(&self.peers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec::try_from(left).expect("a few seconds");
            let mut watched = Vec::new();
            let mut polled = Vec::new();
            for (index, peer) in self.peers.iter().enumerate() {
                let Some(stream) = peer.stream() else { continue };
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, !peer.is_stalled);
                flags.set(PollFlags::OUT, peer.has_output());
                watched.push(index);
                polled.push(PollFd::new(stream, flags));
            }
            poll(&mut polled, Some(&timeout)).expect("poll of our own sockets");
            let ready: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
            for (index, ready) in watched.into_iter().zip(ready) {
                let peer = &mut self.peers[index];
                if ready.intersects(PollFlags::OUT) {
                    peer.write();
                }
                if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                    && !peer.is_stalled
                {
                    peer.read();
                }
            }
        }
        true
    }

    fn log_bytes(&self) -> u64 {
        let meta = self.log.as_ref().and_then(|log| std::fs::metadata(log).ok());
        meta.map_or(0, |meta| meta.len())
    }

    fn log_since(&self, from: u64) -> String {
        let mut bytes = Vec::new();
        if let Some(log) = &self.log
            && let Ok(mut file) = File::open(log)
            && file.seek(SeekFrom::Start(from)).is_ok()
        {
            // What cannot be read is looked for again.
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn can_ping(peer: &Peer) -> bool {
    peer.state == State::Live && !peer.is_stalled
}

/// The packets of an action.
fn packets(peer: &mut Peer, group: usize, action: &Action) -> Vec<Vec<u8>> {
    let version: Version = peer.version;
    match action {
        Action::Subscribe { filters, identifier } => {
            vec![encode::subscribe(version, peer.take_id(group), filters, *identifier)]
        }
        Action::Unsubscribe(filters) => {
            vec![encode::unsubscribe(version, peer.take_id(group), filters)]
        }
        Action::Publish(posts) => posts
            .iter()
            .flat_map(|post| {
                let id = (post.message.qos > 0).then(|| peer.take_id(group));
                encode::publish(version, id, peer.client, post)
            })
            .collect(),
        Action::Ping => {
            peer.pings_out += 1;
            vec![encode::PINGREQ.to_vec()]
        }
        Action::Disconnect { reason, expiry_s } => {
            vec![encode::disconnect(version, *reason, *expiry_s)]
        }
        Action::Malformed(bytes) => vec![bytes.clone()],
        _ => Vec::new(),
    }
}
