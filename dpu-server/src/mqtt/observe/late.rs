//! Observing a broker whose answers prove nothing: only copies do, and only that somebody gets them.
//!
//! ```text
//! PUBLISH, QoS 0, everybody known ──enter──► account ─┬─ all copies came ──► settled; if it was a probe: a proof
//!                                                     └─ too old, too many, in doubt ─┐
//! any other PUBLISH, a will ──────────────say─────────────────────────────────────────┴──► said: may come at any time, for ever
//! ```
//!
//! Nothing ends the time in which a copy may still be on its way there. So a copy proves who was served only if it can be of one message
//! alone: nothing that says the same was ever given to the broker, but for what is settled, of which each subscriber has had as many
//! copies as there were messages. What nobody may receive, or somebody misses, is never settled, and its words teach nothing any more.
//!
//! What was not read may have said anything that fits in it. What was not even seen may have said anything: then nothing is learned
//! from this broker any more ([`Observer::is_lost`]).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::super::ConnId;
use super::super::mutation::{Rule, is_off};
use super::super::ping::PingSeq;
use super::digest::Digest;
use super::said::Said;
use super::window::{Message, Purpose, Size, Window};
use super::{CANDIDATES_MAX, Interference, Observer, Says};

/// Accounts open at one time. With one more the oldest is given up.
const ACCOUNTS_MAX: usize = 4_096;
/// How long an account is open. It is given up then, which costs what it could have shown, and proves nothing.
const ACCOUNT_TIME: Duration = Duration::from_secs(2);

/// What is kept of such a broker besides.
#[derive(Debug, Default)]
pub(super) struct Late {
    said: Said,
    /// Windows by what their messages say. No two say the same.
    accounts: HashMap<Digest, usize>,
    /// Windows by age, the oldest first. Some may be gone.
    ages: VecDeque<(PingSeq, usize)>,
    /// Windows opened so far.
    opened: PingSeq,
    /// Most bytes that one connection sent unread.
    unread_bytes_max: usize,
    is_lost: bool,
    /// Windows that were only to compare, and have shown nothing.
    unproven: u64,
}

/// Stands for whatever may have been said on the topic of `content`, whose upper half is the topic's.
pub(super) fn anything_on(content: Digest) -> Digest {
    let topic = content >> 64;
    topic << 64 | topic
}

impl Observer {
    /// Of a broker that may answer before it delivers. `is_lost`: it was given something that was not seen.
    pub(crate) fn of_late_broker(ttl: Duration, is_lost: bool) -> Self {
        Self { late: Some(Late { is_lost, ..Late::default() }), ..Self::new(ttl) }
    }

    /// Whether it is of a broker that may answer before it delivers.
    pub(crate) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Whether nothing can be learned any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.is_lost)
    }

    /// Why copies of this would prove nothing.
    pub(super) fn late_obstacle(&self, message: &Message, size: Size) -> Option<Interference> {
        let late = self.late.as_ref().filter(|_| !is_off(Rule::VoidWindows))?;
        let Message { content, payload, .. } = *message;
        let is_in_doubt = late.is_lost
            || late.accounts.contains_key(&content)
            || late.said.has(content)
            || late.said.has(anything_on(content))
            || late.said.has(payload)
            || size.payload < late.unread_bytes_max;
        is_in_doubt.then_some(Interference::Lasting)
    }

    /// Something that says this is given to the broker and is not accounted for.
    pub(super) fn say(&mut self, says: Says) {
        match says {
            Says::Nothing => {}
            Says::This(content) => {
                if let Some(at) = self.account(content) {
                    self.give_up(at, None);
                }
                self.add(content);
            }
            Says::AnythingOn(topic) => {
                self.give_up_like(|message| anything_on(message.content) == topic);
                self.add(topic);
            }
            Says::Somewhere(payload) => {
                self.give_up_like(|message| message.payload == payload);
                self.add(payload);
            }
            Says::Anything => self.lose(),
        }
    }

    /// A PUBLISH that the window is of is given to the broker.
    pub(crate) fn enter(&mut self, window: Window, now: Instant) {
        self.give_up_old(now);
        let content = window.message.content;
        let Some(late) = &mut self.late else { return };
        if late.said.has(content) && window.purpose == Purpose::Account {
            return;
        }
        if let Some(&at) = late.accounts.get(&content) {
            self.candidates -= self.windows[at].window.len();
            let is_joined = self.windows[at].window.join(window);
            let joined = &self.windows[at].window;
            self.candidates += joined.len();
            self.by_copy.extend(joined.copies().into_iter().map(|copy| (copy, at)));
            if !is_joined {
                self.say(Says::This(content));
            }
            return;
        }
        late.opened += 1;
        let seq = late.opened;
        if late.ages.len() >= 4 * ACCOUNTS_MAX {
            let windows = &self.windows;
            late.ages.retain(|&(seq, at)| windows.get(at).is_some_and(|it| it.window.seq == seq));
        }
        while (self.windows.len() >= ACCOUNTS_MAX
            || self.candidates + window.len() > CANDIDATES_MAX)
            && self.give_up_oldest(now)
        {}
        let at = self.open(window, seq, now);
        if let Some(late) = &mut self.late {
            late.accounts.insert(content, at);
            late.ages.push_back((seq, at));
        }
    }

    /// The broker sent a subscriber this PUBLISH: takes out the window of which that was the last copy, with the time it was opened.
    pub(crate) fn see_arrive(
        &mut self,
        subscriber: ConnId,
        packet: &[u8],
    ) -> Option<(Window, Instant)> {
        let copy = self.copy(packet);
        let &at = self.by_copy.get(&copy)?;
        let window = &mut self.windows[at].window;
        // Somebody the card does not know of gets it: then neither does it know of whom else.
        window.is_void |= !window.take(subscriber, copy);
        window.is_complete().then(|| self.remove(at))
    }

    /// The broker was given so many bytes on one connection that were not read.
    pub(crate) fn note_unread(&mut self, bytes: usize) {
        if let Some(late) = self.late.as_mut().filter(|late| bytes > late.unread_bytes_max) {
            late.unread_bytes_max = bytes;
            self.give_up_all();
        }
    }

    /// Something may have been given to the broker that nobody saw.
    pub(crate) fn lose(&mut self) {
        if !self.is_late() {
            return;
        }
        self.give_up_all();
        self.known.clear();
        (self.topics, self.verdicts) = (0, 0);
        if let Some(late) = &mut self.late {
            late.is_lost = true;
        }
    }

    /// What is said is not all read: what is open proves nothing, nor is it settled.
    pub(super) fn give_up_all(&mut self) {
        while self.give_up_any() {}
    }

    /// Windows that were to compare and came to nothing, since this was asked last.
    pub(crate) fn take_unproven(&mut self) -> u64 {
        self.late.as_mut().map_or(0, |late| std::mem::take(&mut late.unproven))
    }

    /// Gives up the accounts whose time is over.
    pub(super) fn give_up_old(&mut self, now: Instant) {
        while self
            .oldest()
            .is_some_and(|at| now.saturating_duration_since(self.windows[at].at) >= ACCOUNT_TIME)
            && self.give_up_oldest(now)
        {}
    }

    /// The publisher is gone. What it has said may still come, and shows nothing of whoever has its number next.
    pub(super) fn orphan(&mut self, publisher: ConnId) {
        for at in self.by_publisher.remove(&publisher).unwrap_or_default() {
            let window = &mut self.windows[at].window;
            window.is_void = true;
            if window.purpose == Purpose::Probe {
                window.purpose = Purpose::Account;
            }
        }
    }

    fn give_up_like(&mut self, is_like: impl Fn(&Message) -> bool) {
        let windows = self.windows.iter();
        let alike = windows.filter(|(_, open)| is_like(&open.window.message));
        let alike: Vec<usize> = alike.map(|(at, _)| at).collect();
        alike.into_iter().for_each(|at| self.give_up(at, None));
    }

    fn account(&self, content: Digest) -> Option<usize> {
        self.late.as_ref()?.accounts.get(&content).copied()
    }

    fn add(&mut self, content: Digest) {
        if let Some(late) = &mut self.late {
            late.said.add(content);
        }
    }

    fn oldest(&mut self) -> Option<usize> {
        let Self { late: Some(late), windows, .. } = self else { return None };
        loop {
            let &(seq, at) = late.ages.front()?;
            if windows.get(at).is_some_and(|open| open.window.seq == seq) {
                return Some(at);
            }
            late.ages.pop_front();
        }
    }

    fn give_up_oldest(&mut self, now: Instant) -> bool {
        let Some(at) = self.oldest() else { return false };
        self.give_up(at, Some(now));
        true
    }

    fn give_up_any(&mut self) -> bool {
        let Some(at) = self.oldest() else { return false };
        self.give_up(at, None);
        true
    }

    /// `now`: a probe that came to nothing counts as a failure.
    fn give_up(&mut self, at: usize, now: Option<Instant>) {
        let (window, _) = self.remove(at);
        self.add(window.message.content);
        match window.purpose {
            Purpose::Probe => {
                if let Some(now) = now {
                    self.note_failure(window.publisher, &window.topic, now);
                }
            }
            Purpose::Shadow(_) => {
                if let Some(late) = &mut self.late {
                    late.unproven += 1;
                }
            }
            Purpose::Account => {}
        }
    }

    /// Forgets the account of a window that is taken out.
    pub(super) fn close_account(&mut self, content: Digest, at: usize) {
        if let Some(late) = &mut self.late
            && late.accounts.get(&content) == Some(&at)
        {
            late.accounts.remove(&content);
        }
    }
}
