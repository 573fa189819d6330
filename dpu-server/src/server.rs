//! The data-plane thread: waits for something to happen, and lets agent and card move it.
//!
//! ```text
//!            ┌──────────────── one epoll_wait ────────────────┐
//!            ▼                                                │ nothing moved
//! agent.turn ──► card.turn ──► agent.turn ──► board.publish ──┤
//!      ▲                                                      │ something moved
//!      └──────────────────────────────────────────────────────┘
//! ```
//!
//! With `--channel local` the agent lives in this thread and the channel is a queue between the two; with
//! `--channel emulated:PATH` an agent of its own process connects to PATH, one at a time. Idle, the thread sleeps; before that
//! it may yield its core for `spin_us` and look again.
//!
//! SIGTERM or SIGINT: what brokers wrote is taken, no connection is accepted any more, outboxes get five seconds; a second
//! signal ends the process at once.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mqttshim_agent::Agent;
use mqttshim_channel::emulated::Listener;
use mqttshim_channel::in_process::{InProcess, pair};
use mqttshim_schema::{DATA_OVERHEAD_BYTES, SessionId};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::attach::Attach;
use crate::attach::intercept::Intercept;
use crate::card::{AsTold, Card, CardConfig, PolicyEpochs};
use crate::control::Desk;
use crate::metrics::{Board, Publisher, Snapshot};
use crate::stack::{Event, Stack, Watch};

/// Largest message between agent and card in one process: one full read of a client is one message.
const LOCAL_MESSAGE_BYTES: usize = 64 * 1024 + DATA_OVERHEAD_BYTES;
/// Messages between agent and card in one process, a direction.
const LOCAL_QUEUE_MESSAGES: usize = 256;
/// Longest sleep; only a guard, everything due by time has a deadline.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Passes at the end in which what brokers wrote is still taken.
const LAST_PASSES: usize = 1000;
/// Exit status after a second signal.
const STATUS_IMPATIENT: i32 = 1;

const WATCH_SIGNAL: Watch = Watch(0);
const WATCH_AGENT: Watch = Watch(1);
const WATCH_LISTENER: Watch = Watch(2);
const WATCH_CHANNEL: Watch = Watch(3);
const WATCH_DESK: Watch = Watch(4);

/// Where the host's end of the channel is.
pub enum Host {
    /// In this thread.
    Local {
        /// The agent.
        agent: Box<Agent>,
        /// Its end of the channel, while there is one.
        channel: Option<InProcess>,
    },
    /// In another process, which connects here.
    Emulated {
        /// Where it connects.
        listener: Listener,
        /// The name of that.
        path: PathBuf,
        /// What is asked of the channel's descriptor now.
        watching: Option<Watching>,
    },
}

impl Host {
    /// Where the other end finds this one.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Host::Local { agent, .. } => agent.session_path(),
            Host::Emulated { path, .. } => path,
        }
    }
}

/// What is asked of a channel's descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watching {
    writable: bool,
}

impl PolicyEpochs for Agent {
    fn policy_epoch(&self, session: SessionId) -> u64 {
        Agent::policy_epoch(self, session)
    }
}

/// Why the data plane cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Waiting or watching failed.
    #[error("the event loop failed: {0}")]
    Events(#[from] Errno),
    /// Signals could not be caught.
    #[error("cannot catch signals: {0}")]
    Signals(#[source] io::Error),
}

/// See the module.
pub struct Server<S> {
    card: Card<Intercept, S>,
    host: Host,
    publisher: Publisher,
    desk: Desk,
    spin: Duration,
    spun: Duration,
    events: Vec<Event>,
}

impl<S: Stack> Server<S> {
    /// A server that has not begun. `spin`: how long it looks again, yielding, before it sleeps.
    pub fn new(
        stack: S,
        host: Host,
        config: CardConfig,
        board: Arc<Board>,
        desk: Desk,
        spin: Duration,
    ) -> Server<S> {
        let card = Card::new(Intercept::default(), stack, config);
        let publisher = Publisher::new(board);
        Server { card, host, publisher, desk, spin, spun: Duration::ZERO, events: Vec::new() }
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn run(mut self) -> Result<(), RunError> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut signals = catch_signals(&is_stopping).map_err(RunError::Signals)?;
        self.card.stack.watch(WATCH_SIGNAL, signals.as_fd(), false)?;
        self.begin()?;
        loop {
            let moved = self.pass(Instant::now())?;
            self.rest(moved)?;
            if self.events.contains(&Event::Watched(WATCH_SIGNAL)) && has_signal(&mut signals) {
                is_stopping.store(true, Ordering::SeqCst);
                tracing::info!("stopping: outboxes get five seconds; a second signal ends at once");
                return self.stop();
            }
        }
    }

    fn begin(&mut self) -> Result<(), Errno> {
        self.card.stack.watch(WATCH_DESK, self.desk.bell(), false)?;
        match &self.host {
            Host::Local { agent, .. } => {
                self.card.stack.watch(WATCH_AGENT, agent.readiness(), false)?;
            }
            Host::Emulated { listener, .. } => {
                self.card.stack.watch(WATCH_LISTENER, listener.as_fd(), false)?;
            }
        }
        Ok(())
    }

    /// Moves what can be moved; true if anything did.
    fn pass(&mut self, now: Instant) -> Result<bool, Errno> {
        self.keep_channel(now)?;
        let was_plugged = self.card.attach.is_plugged();
        let mut moved = self.turn_agent(now);
        let epochs: &dyn PolicyEpochs = match &self.host {
            Host::Local { agent, .. } => agent.as_ref(),
            Host::Emulated { .. } => &AsTold,
        };
        moved |= self.card.turn(&self.events, now, epochs);
        moved |= self.serve_desk(now);
        self.events.clear();
        if moved {
            self.turn_agent(now);
        }
        // A channel that was lost is followed at once: whoever waits to be the next is not watched for before.
        moved |= was_plugged && !self.card.attach.is_plugged();
        self.publish(now, moved);
        Ok(moved)
    }

    /// Carries out what an operator asks for, if one does.
    fn serve_desk(&mut self, now: Instant) -> bool {
        if !self.events.contains(&Event::Watched(WATCH_DESK)) {
            return false;
        }
        let Some((order, reply)) = self.desk.poll() else { return false };
        // Who does not wait any more needs no reply.
        let _ = reply.try_send(self.card.handle_order(&order, now));
        true
    }

    fn turn_agent(&mut self, now: Instant) -> bool {
        let Host::Local { agent, channel } = &mut self.host else { return false };
        if self.events.contains(&Event::Watched(WATCH_AGENT)) {
            agent.handle_events();
        }
        let Some(end) = channel else { return false };
        let moved = agent.turn(end, now);
        if agent.take_lost() {
            // The card gave this channel up; the next pass makes another.
            *channel = None;
        }
        moved
    }

    /// Sees to it that there is a channel, or that one can come, and that its descriptor is watched for what is awaited.
    fn keep_channel(&mut self, now: Instant) -> Result<(), Errno> {
        let is_plugged = self.card.attach.is_plugged();
        match &mut self.host {
            Host::Local { channel, .. } => {
                if !is_plugged || channel.is_none() {
                    self.card.attach.unplug();
                    let (ours, theirs) = pair(LOCAL_MESSAGE_BYTES, LOCAL_QUEUE_MESSAGES);
                    self.card.attach.plug(Box::new(ours), now);
                    *channel = Some(theirs);
                }
            }
            Host::Emulated { listener, watching, .. } => {
                if !is_plugged {
                    if watching.take().is_some() {
                        self.card.stack.watch(WATCH_LISTENER, listener.as_fd(), false)?;
                    }
                    match listener.accept() {
                        Ok(Some(channel)) => {
                            // The next one waits its turn.
                            self.card.stack.unwatch(listener.as_fd());
                            self.card.attach.plug(Box::new(channel), now);
                        }
                        Ok(None) => return Ok(()),
                        Err(error) => {
                            tracing::warn!(%error, "an agent cannot be accepted");
                            return Ok(());
                        }
                    }
                }
                let wanted = Watching { writable: self.card.attach.is_blocked() };
                if *watching != Some(wanted)
                    && let Some(descriptor) = self.card.attach.readiness()
                {
                    self.card.stack.watch(WATCH_CHANNEL, descriptor, wanted.writable)?;
                    *watching = Some(wanted);
                }
            }
        }
        Ok(())
    }

    /// Waits for events: not at all if something moved, else after a spin, until the next deadline.
    fn rest(&mut self, moved: bool) -> Result<(), Errno> {
        if moved {
            return self.card.stack.wait(Some(Duration::ZERO), &mut self.events);
        }
        if !self.spin.is_zero() && self.spin_for_work()? {
            return Ok(());
        }
        if let Host::Local { agent, .. } = &mut self.host
            && !agent.prepare_sleep()
        {
            return self.card.stack.wait(Some(Duration::ZERO), &mut self.events);
        }
        let deadline = self.next_deadline();
        let timeout = deadline.map_or(SLEEP_MAX, |at| at.saturating_duration_since(Instant::now()));
        let waited = self.card.stack.wait(Some(timeout.min(SLEEP_MAX)), &mut self.events);
        if let Host::Local { agent, .. } = &mut self.host {
            agent.woke();
        }
        waited
    }

    /// Yields and looks again for a while; true if there is work.
    fn spin_for_work(&mut self) -> Result<bool, Errno> {
        let start = Instant::now();
        let mut found = false;
        let mut now = start;
        while !found && now.duration_since(start) < self.spin {
            std::thread::yield_now();
            self.card.stack.wait(Some(Duration::ZERO), &mut self.events)?;
            now = Instant::now();
            found = !self.events.is_empty() || self.turn_agent(now);
        }
        self.spun += now.duration_since(start);
        Ok(found)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let agent = match &self.host {
            Host::Local { agent, .. } => agent.next_deadline(),
            Host::Emulated { .. } => None,
        };
        let publish = self.publisher.next_deadline();
        [self.card.next_deadline(), agent, publish].into_iter().flatten().min()
    }

    fn publish(&mut self, now: Instant, has_changed: bool) {
        let Server { publisher, card, spun, .. } = self;
        publisher.publish(now, has_changed, || Snapshot {
            survey: card.survey(),
            attach: card.attach.counters(),
            spun: *spun,
        });
    }

    /// What brokers wrote goes out, then everything ends.
    fn stop(mut self) -> Result<(), RunError> {
        for _ in 0..LAST_PASSES {
            if !self.pass(Instant::now())? {
                break;
            }
            self.card.stack.wait(Some(Duration::ZERO), &mut self.events)?;
        }
        self.card.stop(Instant::now());
        self.card.attach.unplug();
        if let Host::Local { agent, channel } = &mut self.host {
            *channel = None;
            agent.shutdown();
            self.card.stack.unwatch(agent.readiness());
        }
        while self.card.sockets_open() > 0 {
            let deadline = self.card.next_deadline().unwrap_or_else(Instant::now);
            let timeout = deadline.saturating_duration_since(Instant::now());
            self.card.stack.wait(Some(timeout.min(SLEEP_MAX)), &mut self.events)?;
            self.card.turn(&self.events, Instant::now(), &AsTold);
            self.events.clear();
        }
        Ok(())
    }
}

/// SIGTERM and SIGINT wake the loop; once `is_stopping`, they end the process.
fn catch_signals(is_stopping: &Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT] {
        let flag = Arc::clone(is_stopping);
        signal_hook::flag::register_conditional_shutdown(signal, STATUS_IMPATIENT, flag)?;
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

fn has_signal(signals: &mut UnixStream) -> bool {
    matches!(signals.read(&mut [0; 16]), Ok(1..))
}
