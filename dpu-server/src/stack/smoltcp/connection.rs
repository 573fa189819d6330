//! One connection: smoltcp's state machine, alone in its set, and what surrounds it.
//!
//! smoltcp looks through the whole set of sockets for every segment, so each connection has a set of its own and is found by
//! its flow ([`super::tcp`]). smoltcp shows no sequence numbers; they follow from what came and went through its buffers.

use std::time::Duration;

use rustix::io::Errno;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::TcpSeqNumber as Number;

use super::clock;
use super::device::Numbers;
use super::guard::{Place, Told};
use super::listener::Name;
use super::segment::Flow;
use crate::stack::Key;
use mqttshim_port::Mac;

/// For how long somebody who began a handshake is waited for.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For how long acknowledgements may be missing, as Linux' tcp_retries2 has it; RFC 9293 §3.8.3 wants at least 100 s.
const SILENCE: Duration = Duration::from_secs(924);
/// For how long a connection that nobody holds any more waits for the client's FIN (Linux' tcp_fin_timeout).
const ORPHAN: Duration = Duration::from_secs(60);

/// Bytes of a connection's two buffers. Pages that were never touched are not there.
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

/// See the module.
pub(super) struct Connection {
    pub(super) set: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) flow: Flow,
    /// Its port is in use, for whoever binds it.
    pub(super) name: Name,
    /// Where its frames go; `None` while the neighbour is asked for.
    pub(super) mac: Option<Mac>,
    pub(super) stage: Stage,
    /// Tells it from others that had its number before.
    pub(super) serial: u64,
    /// What its holder calls it.
    pub(super) key: Option<Key>,
    /// The entry in the wheel that is its own.
    pub(super) armed: Option<u64>,
    /// It is on the list of those that have something to send.
    pub(super) is_dirty: bool,
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
    /// It had its error: there is one only.
    has_failed: bool,
    /// Its holder reads no more; so many bytes had been received by then.
    read_shut_at: Option<usize>,
    /// For how long a connect waits for its answer.
    pub(super) connect_patience: Duration,
    /// `SO_LINGER` of nothing: closing resets.
    pub(super) is_abortive: bool,
    /// Of what it sent, once a segment left.
    pub(super) numbers: Option<Numbers>,
    /// IRS, once a SYN came.
    first_received: Option<Number>,
    sent: usize,
    taken: usize,
    pub(super) window_told: Option<Told>,
}

impl Connection {
    /// `name`: of the socket it belongs to.
    pub(super) fn new(
        flow: Flow,
        name: Name,
        mac: Option<Mac>,
        stage: Stage,
        buffers: Buffers,
    ) -> Connection {
        let receive = tcp::SocketBuffer::new(vec![0; buffers.receive_bytes]);
        let send = tcp::SocketBuffer::new(vec![0; buffers.send_bytes]);
        let mut socket = tcp::Socket::new(receive, send);
        socket.set_ack_delay(Some(clock::dilate(clock::ACK_DELAY)));
        // Whatever TCP_NODELAY says: a message that waits for company is late.
        socket.set_nagle_enabled(false);
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Connection {
            set,
            handle,
            flow,
            name: Name { address: flow.local, is_listening: false, ..name },
            connect_patience: HANDSHAKE,
            mac,
            stage,
            serial: 0,
            key: None,
            armed: None,
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
            numbers: None,
            first_received: None,
            sent: 0,
            taken: 0,
            window_told: None,
        }
    }

    pub(super) fn socket(&self) -> &tcp::Socket<'static> {
        self.set.get(self.handle)
    }

    pub(super) fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.set.get_mut(self.handle)
    }

    /// A SYN, or a SYN with an acknowledgement, begins at this number.
    pub(super) fn begins_at(&mut self, number: Number) {
        self.first_received.get_or_insert(number);
    }

    /// Sets for how long the client may be silent. smoltcp would end an idle connection too, so only while an answer is due.
    pub(super) fn bound_silence(&mut self) {
        let bound = match self.stage {
            Stage::HalfOpen(_) => Some(HANDSHAKE),
            Stage::Connecting => Some(self.connect_patience),
            Stage::Orphaned => Some(ORPHAN),
            Stage::Queued(_) | Stage::Held => {
                let state = self.socket().state();
                let awaits = self.socket().send_queue() > 0
                    || matches!(
                        state,
                        tcp::State::FinWait1 | tcp::State::LastAck | tcp::State::Closing
                    );
                awaits.then_some(SILENCE)
            }
        };
        self.socket_mut().set_timeout(bound.map(clock::dilate));
    }

    /// Whether both ends have seen each other's SYN; only then segments have a place.
    pub(super) fn place(&self) -> Option<Place> {
        use tcp::State;
        let socket = self.socket();
        let state = socket.state();
        if matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived) {
            return None;
        }
        let has_fin =
            matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        let fin_is_known = matches!(state, State::FinWait2 | State::TimeWait);
        let unread = socket.recv_queue();
        let received = self.taken + unread + usize::from(has_fin);
        let known = self.sent - socket.send_queue() + usize::from(fin_is_known);
        Some(Place {
            expected: plus(self.first_received?, 1 + received),
            receive_window: socket.recv_capacity() - unread,
            unacknowledged: plus(self.numbers?.first, 1 + known),
            is_waiting: state == State::TimeWait,
        })
    }

    /// Notes the client's FIN.
    pub(super) fn note_fin(&mut self) {
        use tcp::State;
        let state = self.socket().state();
        self.is_finished |=
            matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
    }

    /// Neither end sends any more, or one has reset it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.socket().state(), tcp::State::Closed | tcp::State::Listen)
    }

    /// Notes why it is gone.
    pub(super) fn fail(&mut self, error: Errno) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.error = Some(error);
        }
    }

    /// Its holder reads no more.
    pub(super) fn shut_reading(&mut self) {
        let received = self.received();
        self.read_shut_at.get_or_insert(received);
    }

    pub(super) fn is_read_shut(&self) -> bool {
        self.read_shut_at.is_some()
    }

    /// Whether bytes came after both halves were shut: they are answered with a reset (RFC 1122 §4.2.2.13).
    pub(super) fn has_bytes_for_nobody(&self) -> bool {
        matches!(self.socket().state(), tcp::State::FinWait1 | tcp::State::FinWait2)
            && self.read_shut_at.is_some_and(|before| self.received() != before)
    }

    /// Bytes that came, modulo the word.
    fn received(&self) -> usize {
        self.taken.wrapping_add(self.socket().recv_queue())
    }

    /// Takes received bytes.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> usize {
        let taken = self.socket_mut().recv_slice(into).unwrap_or(0);
        self.taken = self.taken.wrapping_add(taken);
        self.told_bytes = self.socket().recv_queue();
        taken
    }

    /// Offers bytes; says how many fit.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        let taken = self.socket_mut().send_slice(bytes).unwrap_or(0);
        self.sent = self.sent.wrapping_add(taken);
        taken
    }

    /// Nobody holds it any more: FIN after what was sent, or RST where bytes are lost or the holder wants it so.
    pub(super) fn let_go(&mut self, is_reset: bool) {
        self.stage = Stage::Orphaned;
        self.key = None;
        let is_unread = self.socket().recv_queue() > 0;
        if is_reset || is_unread || self.is_abortive {
            self.socket_mut().abort();
        } else {
            self.socket_mut().close();
        }
    }
}

/// Modulo 2³².
fn plus(number: Number, count: usize) -> Number {
    Number(number.0.wrapping_add(count as u32 as i32))
}
