//! One connection: smoltcp's state machine, and what surrounds it.
//!
//! Its buffers have a size, which the window tells from the SYN on, and take memory only as they fill. An idle connection is this
//! structure and little more.

use std::time::Duration;

use rustix::io::Errno;
use smoltcp::socket::tcp;
use smoltcp::time;
use smoltcp::wire::{TcpRepr, TcpSeqNumber as Number};

use super::clock;
use super::guard::{Place, Told};
use super::listener::Name;
use super::options::{Effects, KeepAlive};
use super::segment::Flow;
use crate::stack::Key;
use mqttshim_port::Mac;

/// For how long somebody who began a handshake is waited for.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For how long acknowledgements may be missing, as Linux' tcp_retries2 has it; RFC 9293 §3.8.3 wants at least 100 s.
const SILENCE: Duration = Duration::from_secs(924);
/// For how long a connection that nobody holds any more may come no nearer to its end, whatever its client says (Linux' tcp_fin_timeout).
const ORPHAN: Duration = Duration::from_secs(60);

/// What a buffer that became empty keeps of its memory, in bytes: enough for small messages to need no allocation each.
const KEPT_BYTES: usize = 1024;
/// The same while the connection has a deadline soon, which looks at it again.
const KEPT_BUSY_BYTES: usize = 8 * 1024;

/// Most bytes a connection's two buffers hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Buffers {
    pub(super) receive_bytes: usize,
    pub(super) send_bytes: usize,
}

/// Where a connection is between its first segment and its last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Of this listener, its handshake not over.
    HalfOpen(Key),
    /// Waits to be accepted from this listener.
    Queued(Key),
    /// The card's own connect is under way.
    Connecting,
    /// Somebody holds it.
    Held,
    /// Nobody does; it ends by itself.
    Orphaned,
}

/// A connection that nobody holds, and until when it has to be elsewhere.
struct Lingering {
    state: tcp::State,
    unacknowledged_bytes: usize,
    until: Duration,
}

/// See the module.
pub(super) struct Connection {
    /// Where its frames go; `None` while the neighbour is asked for.
    pub(super) mac: Option<Mac>,
    /// That is where its segments come from: the client connected.
    pub(super) follows: bool,
    /// It is on the list of those that have something to send.
    pub(super) is_dirty: bool,
    /// For how long acknowledgements may be missing, by smoltcp's clock.
    pub(super) patience: time::Duration,
    /// Bytes of memory of its buffers that are counted already.
    pub(super) counted_bytes: usize,
    pub(super) socket: tcp::Socket<'static>,
    pub(super) stage: Stage,
    pub(super) flow: Flow,
    /// Its port is in use, for whoever binds it.
    pub(super) name: Name,
    /// Tells it from others that had its number before.
    pub(super) serial: u64,
    /// What its holder calls it.
    pub(super) key: Option<Key>,
    /// A send was cut short: its holder waits for room.
    pub(super) is_full: bool,
    /// Bytes its holder knows of.
    pub(super) told_bytes: usize,
    /// Its holder knows of the end.
    pub(super) is_end_told: bool,
    /// The same of an error, which may come behind the end.
    pub(super) is_error_told: bool,
    /// Why it is gone; told once.
    pub(super) error: Option<Errno>,
    /// The client's FIN came, whatever became of the connection since.
    pub(super) is_finished: bool,
    /// How far it is since nobody holds it.
    lingering: Option<Lingering>,
    /// It had its error: there is one only.
    has_failed: bool,
    /// Its holder reads no more; what came before this had been received by then.
    read_shut_at: Option<Number>,
    /// For how long a connect waits for its answer.
    connect_patience: Duration,
    /// `SO_LINGER` of nothing: closing resets.
    pub(super) is_abortive: bool,
    /// How long it may be silent before it is asked, if its holder wants that (SO_KEEPALIVE).
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) window_told: Option<Told>,
}

impl Connection {
    /// `name`: of the socket it belongs to. `first`: its initial sequence number.
    pub(super) fn new(
        flow: Flow,
        name: Name,
        mac: Option<Mac>,
        stage: Stage,
        buffers: Buffers,
        first: Number,
    ) -> Connection {
        let receive = tcp::SocketBuffer::growing(buffers.receive_bytes);
        let send = tcp::SocketBuffer::growing(buffers.send_bytes);
        let mut socket = tcp::Socket::new(receive, send);
        socket.set_ack_delay(Some(clock::dilate(clock::ACK_DELAY)));
        // Whatever TCP_NODELAY says: a message that waits for company is late.
        socket.set_nagle_enabled(false);
        socket.set_initial_seq_no(Some(first));
        Connection {
            socket,
            flow,
            name: Name { address: flow.local, is_listening: false, ..name },
            connect_patience: HANDSHAKE,
            mac,
            follows: mac.is_some(),
            lingering: None,
            stage,
            serial: 0,
            key: None,
            is_dirty: false,
            is_full: false,
            told_bytes: 0,
            is_end_told: false,
            is_error_told: false,
            has_failed: false,
            error: None,
            is_finished: false,
            read_shut_at: None,
            is_abortive: false,
            keep_alive: None,
            patience: clock::dilate(SILENCE),
            window_told: None,
            counted_bytes: 0,
        }
    }

    /// Sets for how long the client may be silent. smoltcp would end an idle connection too, so only while an answer is due.
    pub(super) fn bound_silence(&mut self, now: Duration) {
        let bound = match self.stage {
            Stage::HalfOpen(_) => Some(HANDSHAKE),
            Stage::Connecting => Some(self.connect_patience),
            Stage::Orphaned => {
                self.bound_lingering(now);
                Some(ORPHAN)
            }
            Stage::Queued(_) | Stage::Held if self.awaits_acknowledgement() => {
                return self.socket.set_timeout(Some(self.patience));
            }
            Stage::Queued(_) | Stage::Held => self.keep_alive.map(|it| it.patience()),
        };
        self.socket.set_timeout(bound.map(clock::dilate));
    }

    /// Gives it up if it has come no nearer to its end for long: a client that never ends, or never reads, may answer all the same.
    fn bound_lingering(&mut self, now: Duration) {
        let (state, unacknowledged_bytes) = (self.socket.state(), self.socket.send_queue());
        match &self.lingering {
            Some(it) if it.state == state && it.unacknowledged_bytes == unacknowledged_bytes => {
                if now >= it.until {
                    self.socket.abort();
                }
            }
            _ => {
                let until = now + ORPHAN;
                self.lingering = Some(Lingering { state, unacknowledged_bytes, until });
            }
        }
    }

    /// Sends to where a segment came from that passed, so that only its client can have made it.
    pub(super) fn follow(&mut self, place: &Place, says: &TcpRepr<'_>, from: Mac) {
        if self.follows && self.mac != Some(from) && place.accepts(says) {
            self.mac = Some(from);
        }
    }

    /// Lets it follow the options of its socket.
    pub(super) fn take_effect(&mut self, now: Duration, effects: &Effects) {
        self.is_abortive = effects.is_abortive;
        self.connect_patience = effects.connect_patience;
        self.patience = clock::dilate(effects.user_timeout.unwrap_or(SILENCE));
        self.socket.set_hop_limit(effects.hop_limit);
        if self.keep_alive != effects.keep_alive {
            self.set_keep_alive(now, effects.keep_alive);
        }
    }

    fn set_keep_alive(&mut self, now: Duration, keep_alive: Option<KeepAlive>) {
        self.keep_alive = keep_alive;
        let interval = keep_alive.map(|it| clock::dilate(it.interval));
        let idle = keep_alive.map(|it| clock::dilate(it.idle));
        self.socket.set_keep_alive_after(clock::instant(now), idle, interval);
    }

    fn awaits_acknowledgement(&self) -> bool {
        use tcp::State;
        self.socket.send_queue() > 0
            || matches!(self.socket.state(), State::FinWait1 | State::LastAck | State::Closing)
    }

    /// Whether both ends have seen each other's SYN; only then segments have a place.
    pub(super) fn place(&self) -> Option<Place> {
        use tcp::State;
        let socket = &self.socket;
        let state = socket.state();
        if matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived) {
            return None;
        }
        let has_fin = matches!(state, State::FinWait1 | State::LastAck | State::Closing);
        Some(Place {
            expected: socket.receive_next(),
            receive_window: socket.recv_capacity() - socket.recv_queue(),
            unacknowledged: socket.send_unacknowledged(),
            end: socket.send_unacknowledged() + socket.send_queue() + usize::from(has_fin),
            is_waiting: state == State::TimeWait,
            has_ended: has_client_ended(state),
        })
    }

    /// Notes the client's FIN.
    pub(super) fn note_fin(&mut self) {
        self.is_finished |= has_client_ended(self.socket.state());
    }

    /// Neither end sends any more, or one has reset it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.socket.state(), tcp::State::Closed | tcp::State::Listen)
    }

    /// Notes why it is gone.
    pub(super) fn fail(&mut self, error: Errno) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.error = Some(error);
        }
    }

    /// Its holder reads no more.
    pub(super) fn shut_reading(&mut self) {
        let received = self.socket.receive_next();
        self.read_shut_at.get_or_insert(received);
    }

    pub(super) fn is_read_shut(&self) -> bool {
        self.read_shut_at.is_some()
    }

    /// Whether bytes came after both halves were shut: they are answered with a reset (RFC 1122 §4.2.2.13).
    pub(super) fn has_bytes_for_nobody(&self) -> bool {
        matches!(self.socket.state(), tcp::State::FinWait1 | tcp::State::FinWait2)
            && self.read_shut_at.is_some_and(|before| self.socket.receive_next() != before)
    }

    /// Takes received bytes.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> usize {
        let taken = self.socket.recv_slice(into).unwrap_or(0);
        self.told_bytes = self.socket.recv_queue();
        taken
    }

    /// Gives back the memory of buffers that are empty. What is small, and filled and emptied many times a second, keeps its memory
    /// while the connection `is_busy`.
    pub(super) fn shrink(&mut self, is_busy: bool) {
        self.socket.shrink(if is_busy { KEPT_BUSY_BYTES } else { KEPT_BYTES });
    }

    /// Nobody holds it any more: FIN after what was sent, or RST where bytes are lost or the holder wants it so.
    pub(super) fn let_go(&mut self, is_reset: bool) {
        self.stage = Stage::Orphaned;
        self.key = None;
        let is_unread = self.socket.recv_queue() > 0;
        if is_reset || is_unread || self.is_abortive {
            self.socket.abort();
        } else {
            self.socket.close();
        }
    }
}

/// Whether the client's FIN came.
fn has_client_ended(state: tcp::State) -> bool {
    use tcp::State;
    matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
}
