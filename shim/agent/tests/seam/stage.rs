//! Agent and card on one channel, moved by hand.

use std::path::Path;
use std::time::{Duration, Instant};

use mqttshim_agent::{Agent, AgentConfig};
use mqttshim_channel::in_process::{InProcess, pair};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::card::{Card, MESSAGE_BYTES};
use crate::program::ready;

/// Messages the channel queues, unless a test wants fewer.
pub(crate) const QUEUE: usize = 256;

pub(crate) struct Stage {
    pub(crate) agent: Agent,
    /// `None` once the agent said that the card is gone: its owner lets go of the channel then.
    pub(crate) channel: Option<InProcess>,
    pub(crate) card: Option<Card>,
    pub(crate) turns: u64,
    queue: usize,
    silent: Option<InProcess>,
}

pub(crate) fn config(path: &Path, sessions_per_uid_max: u32) -> AgentConfig {
    AgentConfig {
        session_path: Some(path.into()),
        session_group: None,
        sockets_max: 256,
        sessions_per_uid_max,
    }
}

impl Stage {
    pub(crate) fn new(path: &Path, sessions_per_uid_max: u32, queue: usize) -> Stage {
        let agent = Agent::open(config(path, sessions_per_uid_max)).expect("a session path");
        let (channel, card) = pair(MESSAGE_BYTES, queue);
        Stage {
            agent,
            channel: Some(channel),
            card: Some(Card::new(card)),
            turns: 0,
            queue,
            silent: None,
        }
    }

    /// One round of everything. Says whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        self.turns += 1;
        self.agent.handle_events();
        let mut has_moved = false;
        if let Some(channel) = &mut self.channel {
            has_moved = self.agent.turn(channel, Instant::now());
            if self.agent.take_lost() {
                self.channel = None;
            }
        }
        if let Some(card) = &mut self.card {
            has_moved |= card.turn();
        }
        has_moved
    }

    /// Turns until nothing moves.
    ///
    /// # Panics
    /// When that never comes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.turn() || !self.agent.prepare_sleep() {
                continue;
            }
            self.agent.woke();
            if ready(self.agent.readiness()).is_empty() {
                return;
            }
        }
        panic!("the agent never comes to rest");
    }

    /// Has the agent take so many of the looks it takes once a second.
    pub(crate) fn look(&mut self, times: u32) {
        let start = Instant::now();
        for time in 1..=times {
            // So far apart that it believes to have been stopped itself: the card's silence is forgiven.
            let now = start + time * Duration::from_secs(3);
            if let Some(channel) = &mut self.channel {
                self.agent.turn(channel, now);
            }
            if let Some(card) = &mut self.card {
                card.turn();
            }
        }
    }

    /// Sleeps as an owner does: until there is something, at most this long.
    pub(crate) fn sleep(&mut self, most: Duration, other: PollFd<'_>) {
        if !self.agent.prepare_sleep() {
            return;
        }
        let now = Instant::now();
        let deadline = self.agent.next_deadline();
        let wait = deadline.map_or(most, |at| at.saturating_duration_since(now).min(most));
        let wait = Timespec::try_from(wait).expect("a short time");
        let mut fds = [PollFd::from_borrowed_fd(self.agent.readiness(), PollFlags::IN), other];
        let _ = rustix::event::poll(&mut fds, Some(&wait));
        self.agent.woke();
    }

    /// The card goes away without a word.
    pub(crate) fn lose_card(&mut self) {
        self.card = None;
    }

    /// Another card, which never says a word.
    pub(crate) fn silence_card(&mut self) {
        self.lose_card();
        self.turn();
        let (channel, card) = pair(MESSAGE_BYTES, self.queue);
        (self.channel, self.silent) = (Some(channel), Some(card));
    }

    /// Another card, on a channel of its own.
    pub(crate) fn new_card(&mut self) {
        let (channel, card) = pair(MESSAGE_BYTES, self.queue);
        self.channel = Some(channel);
        self.card = Some(Card::new(card));
    }

    pub(crate) fn card(&mut self) -> &mut Card {
        self.card.as_mut().expect("there is a card")
    }

    /// Does what waits for the agent, in a thread, while the agent runs here.
    pub(crate) fn serve<R: Send>(&mut self, ask: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            while !asking.is_finished() {
                self.turn();
                std::thread::yield_now();
            }
            asking.join().expect("the request did not panic")
        })
    }
}
