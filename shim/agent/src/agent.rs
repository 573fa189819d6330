//! The agent itself: what it holds, and the order in which a turn does things.
//!
//! A turn takes messages from the card, then what programs wrote, then the sockets they closed. Order towards the card is
//! kept by one [`Line`]: while it holds messages the channel had no room for, nothing more is taken from any program.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttshim_channel::{CommChannel, RecvError};
use mqttshim_schema::{Agreed, RequestId, SessionId, SocketId};
use mqttshim_session::SlotId;
use rustc_hash::FxHashMap;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};

use crate::lease::Lease;
use crate::line::Line;
use crate::peer::Peer;
use crate::programs::CARD_WAIT;
use crate::rendezvous::{OpenError, Rendezvous};
use crate::requests::{self, Frame, Pending};
use crate::token::Token;

/// How an agent serves.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The session path; `None`: the default of this user.
    pub session_path: Option<PathBuf>,
    /// Only members of this group may open a session; `None`: everybody may.
    pub session_group: Option<String>,
    /// Sockets of one session.
    pub sockets_max: u32,
    /// Sessions of one uid at a time.
    pub sessions_per_uid_max: u32,
}

/// How often the agent looks whether listeners are still held.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Messages taken from the card in one turn.
const MESSAGES_PER_TURN: usize = 256;
/// Events taken at a time.
const EVENTS_MAX: usize = 256;

/// A listener without a session. Its program opens one when it is woken.
pub(crate) struct Orphan {
    pub(crate) name: String,
    /// How often it may still be woken, at one look each: a wake-up is lost that reaches a program just as it finds that there
    /// is no agent, and a program whose sessions end as fast as it opens them must come to rest.
    pub(crate) wakes: u32,
}

/// Wake-ups of one orphan.
pub(crate) const WAKES: u32 = 5;

/// The host end of the Comm Channel. See the crate's own words.
pub struct Agent {
    pub(crate) config: AgentConfig,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) epoll: Arc<OwnedFd>,
    events: Vec<epoll::Event>,
    pub(crate) peers: FxHashMap<SessionId, Peer>,
    /// Where each of the channel's sockets lives. A number stays here until the card said that it is free.
    pub(crate) places: FxHashMap<SocketId, (SessionId, SlotId)>,
    pub(crate) pending: FxHashMap<RequestId, Pending>,
    /// Requests that have not been passed on yet.
    pub(crate) requests: VecDeque<Frame>,
    /// Programs that knock wait until then: the card has not answered, or there is no descriptor for them.
    pub(crate) door_closed_until: Option<Instant>,
    /// Listeners whose session is gone and that no other session has taken over yet.
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) line: Line,
    pub(crate) lease: Lease,
    /// What was agreed with the card, once it answered.
    pub(crate) card: Option<Agreed>,
    /// Why the latest card that answered cannot be worked with.
    pub(crate) misfit: Option<String>,
    /// Bytes of one socket that the card takes before it grants more.
    pub(crate) card_window: u32,
    is_lost: bool,
    probed: Instant,
    incoming: Vec<u8>,
    pub(crate) frame: Vec<u8>,
    /// The sessions of one pass, and where among them the next one begins.
    pub(crate) ids: Vec<SessionId>,
    pub(crate) first: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) next_session: u32,
    pub(crate) next_socket: u32,
    pub(crate) next_request: u32,
    pub(crate) listeners_made: u32,
    pub(crate) unprivileged_port_start: u16,
}

impl Agent {
    /// Opens the session path.
    ///
    /// # Errors
    /// See [`OpenError`]; its text says what to do.
    pub fn open(config: AgentConfig) -> Result<Agent, OpenError> {
        let system = |what| move |errno| OpenError::System { what, errno };
        let path = config.session_path.as_deref();
        let rendezvous = Rendezvous::open(path, config.session_group.as_deref())?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let token = Token::Rendezvous.data();
        epoll::add(&epoll, rendezvous.socket(), token, EventFlags::empty())
            .map_err(system("epoll"))?;
        let now = Instant::now();
        Ok(Agent {
            config,
            rendezvous,
            epoll: Arc::new(epoll),
            events: Vec::with_capacity(EVENTS_MAX),
            peers: FxHashMap::default(),
            places: FxHashMap::default(),
            pending: FxHashMap::default(),
            requests: VecDeque::new(),
            door_closed_until: Some(now + CARD_WAIT),
            orphans: Vec::new(),
            line: Line::default(),
            lease: Lease::new(now),
            card: None,
            misfit: None,
            card_window: 0,
            is_lost: false,
            probed: now,
            incoming: Vec::new(),
            frame: Vec::new(),
            ids: Vec::new(),
            first: 0,
            payload: vec![0; mqttshim_session::PAYLOAD_BYTES_MAX],
            next_session: 0,
            next_socket: 1,
            next_request: 0,
            listeners_made: 0,
            unprivileged_port_start: requests::unprivileged_port_start(),
        })
    }

    /// The session path programs connect to.
    pub fn session_path(&self) -> &Path {
        self.rendezvous.path()
    }

    /// An epoll set that is readable when [`handle_events`](Self::handle_events) has something to do.
    pub fn readiness(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether the channel has no room for what programs said: wait until it is writable before the next turn.
    pub fn is_congested(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether the card is gone since last asked. Every session has been ended then; the next turn, on a new channel, starts
    /// anew and wakes the listeners.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Takes what the kernel reports: new programs, requests, wires whose last descriptor is gone. Never blocks.
    pub fn handle_events(&mut self) {
        self.open_door(Instant::now(), false);
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let taken =
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now));
        if taken.is_ok() {
            for event in &events {
                self.handle_event(Token::from_data(event.data));
            }
        }
        self.events = events;
    }

    fn handle_event(&mut self, token: Token) {
        match token {
            Token::Rendezvous => self.accept_programs(),
            Token::Control(session, number) => self.read_control(session, number),
            Token::Doorbell(session) => {
                if let Some(peer) = self.peers.get(&session) {
                    peer.host.clear_doorbell();
                }
            }
            Token::Wire(session, index) => self.hang_up(session, index),
        }
    }

    /// Moves what can be moved, both ways. Says whether anything moved.
    pub fn turn(&mut self, channel: &mut dyn CommChannel, now: Instant) -> bool {
        self.open_door(now, false);
        self.lease.turned(now);
        let mut has_moved = self.lease.greet(channel, &mut self.line, self.card.is_some());
        has_moved |= self.flush(channel);
        has_moved |= self.take_messages(channel, now);
        if self.lease.is_over(now) {
            tracing::error!("the card has been silent for too long");
            self.lose_card(now);
        }
        if self.card.is_some() {
            has_moved |= self.drain_programs(channel);
            has_moved |= self.run_requests(channel);
            self.lease.beat(channel, &mut self.line, now);
            self.look_around(channel, now);
        }
        has_moved
    }

    fn flush(&mut self, channel: &mut dyn CommChannel) -> bool {
        let mut refused = Vec::new();
        let has_moved = self.line.flush(channel, |message| {
            refused.extend(requests::request_of(message));
        });
        for request in refused {
            self.refuse(request, rustix::io::Errno::NOBUFS);
        }
        has_moved
    }

    fn take_messages(&mut self, channel: &mut dyn CommChannel, now: Instant) -> bool {
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut taken = 0;
        while taken < MESSAGES_PER_TURN {
            match channel.recv(&mut incoming) {
                Ok(()) => {
                    self.lease.heard(now);
                    taken += 1;
                    self.handle_bytes(channel, &incoming, now);
                    if self.card.is_none() {
                        // What follows on a channel that was given up means nothing.
                        break;
                    }
                }
                Err(RecvError::Empty) => break,
                Err(RecvError::Lost) => {
                    if !self.is_lost {
                        tracing::error!("the card is gone");
                        self.lose_card(now);
                    }
                    break;
                }
            }
        }
        self.incoming = incoming;
        taken > 0
    }

    fn handle_bytes(&mut self, channel: &mut dyn CommChannel, bytes: &[u8], now: Instant) {
        match mqttshim_schema::decode(bytes) {
            Ok(message) => self.handle_card(channel, &message, now),
            Err(error) if error.is_skippable() => {
                tracing::debug!(%error, "skipped a message of a newer card");
            }
            Err(error) => {
                tracing::error!(%error, "the card sent what is no message");
                self.lose_card(now);
            }
        }
    }

    /// The card is gone: every socket of every program reports ECONNRESET.
    pub(crate) fn lose_card(&mut self, now: Instant) {
        for (_, peer) in self.peers.drain() {
            peer.host.end();
        }
        self.places.clear();
        self.pending.clear();
        self.requests.clear();
        self.orphans.clear();
        self.line.clear();
        self.card = None;
        self.lease = Lease::new(now);
        self.is_lost = true;
        self.close_door(now + CARD_WAIT);
    }

    /// How often what the program of a session permits may have changed, at this moment: whatever it did before this call is
    /// counted, also where its [`PolicyChanged`](mqttshim_schema::Message::PolicyChanged) is still on its way. One atomic load.
    pub fn policy_epoch(&self, session: SessionId) -> u64 {
        self.peers.get(&session).map_or(0, |peer| peer.host.policy_epoch())
    }

    /// Says that the owner is about to sleep on [`readiness`](Self::readiness). `false`: something came in, take a turn first.
    pub fn prepare_sleep(&mut self) -> bool {
        if self.card.is_none() || self.is_congested() {
            return true;
        }
        // All are armed before the verdict, so that `woke` undoes all.
        let mut is_quiet = true;
        for peer in self.peers.values() {
            is_quiet &= peer.host.prepare_sleep();
        }
        if !is_quiet {
            self.woke();
        }
        is_quiet
    }

    /// The owner is awake.
    pub fn woke(&mut self) {
        for peer in self.peers.values() {
            peer.host.woke();
        }
    }

    /// When to take a turn at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        let has_listeners =
            !self.orphans.is_empty() || self.peers.values().any(Peer::has_listeners);
        let probe = has_listeners.then(|| self.probed + PROBE_INTERVAL);
        let deadlines = [self.lease.next_deadline(), probe, self.door_closed_until];
        deadlines.into_iter().flatten().min()
    }

    /// Ends every session, as a program sees it when the card is stopped on purpose.
    pub fn shutdown(&mut self) {
        self.lose_card(Instant::now());
    }

    /// Looks once a second whether listeners whose Close nobody said are still held, and for receive rings that lie idle.
    fn look_around(&mut self, channel: &mut dyn CommChannel, now: Instant) {
        if now.duration_since(self.probed) < PROBE_INTERVAL {
            return;
        }
        self.probed = now;
        self.peers.values_mut().for_each(Peer::return_idle_pages);
        let listeners: Vec<_> = self.peers.values().flat_map(Peer::listeners).collect();
        for (session, slot) in listeners {
            self.close_listener_if_gone(channel, session, slot);
        }
        let abandoned: Vec<(SessionId, SlotId)> = self
            .peers
            .iter_mut()
            .flat_map(|(&id, peer)| peer.abandoned().into_iter().map(move |slot| (id, slot)))
            .collect();
        for (session, slot) in abandoned {
            tracing::warn!(
                session = session.0,
                "gave up a connection whose process died in accept"
            );
            self.reset_socket(channel, session, slot);
        }
        self.look_after_orphans();
    }

    /// Forgets the orphans that found a session or are gone, and wakes those whose program seems not to know.
    fn look_after_orphans(&mut self) {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain_mut(|orphan| {
            let name = &orphan.name;
            if self.peers.values().any(|peer| peer.listener_named(name).is_some())
                || !self.rendezvous.keep_held(name)
            {
                return false;
            }
            if orphan.wakes > 0 {
                orphan.wakes -= 1;
                // One that is gone is found at the next look.
                let _ = self.rendezvous.wake(name);
            }
            true
        });
        self.orphans = orphans;
    }
}
