//! The client side of one TCP connection, without I/O and without a clock.
//!
//! RFC 9293, as little of it as a load generator on a private link needs:
//!
//! ```text
//! handle_segment(segment) ──► bytes in order, Progress        write(bytes), close()
//!                      poll_segment(now) ──► segments to send, until None
//! ```
//!
//! In-order receive only: a segment that leaves a gap is dropped and answered with a duplicate ACK, so the server
//! retransmits. One retransmission timer per connection with fixed start and doubling; after
//! [`TRIES_MAX`] tries the connection fails, so a lost frame delays a run and a dead server ends it. No congestion
//! control, no SACK, no timestamps, no TIME-WAIT (ports are never reused). The receive window is constant because the
//! caller takes every byte at once.

use super::frame::{Segment, flags};

/// First retransmission timeout.
const RETRANSMIT_NS: u64 = 200_000_000;
/// Longest retransmission timeout.
const RETRANSMIT_NS_MAX: u64 = 3_200_000_000;
/// Transmissions of one segment before the connection fails.
const TRIES_MAX: u32 = 7;
/// Our Maximum Segment Size: 1,500 bytes of MTU less 40 of headers.
const MSS: u16 = 1460;
/// RFC 9293 (MUST-15): what to assume of a peer that names no Maximum Segment Size.
const MSS_UNSAID: u16 = 536;
/// Our window scale: 65,535 << 7 is 8 MiB.
const WINDOW_SCALE: u8 = 7;

/// What a segment changed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Progress<'a> {
    /// Nothing the user needs to know.
    None,
    /// The connection is open.
    Connected,
    /// These bytes came next.
    Data(&'a [u8]),
    /// The connection is over, for this reason.
    Closed(&'static str),
    /// The server answered for an older connection with these numbers: to be met with a reset.
    Stale,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    SynSent,
    Open,
    Closed,
}

/// Whether the server waits for an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AckDue {
    /// No.
    No,
    /// Yes, for this many bytes; it may wait for more.
    Later(usize),
    /// Yes, and at once: RFC 9293 (SHLD-19) for every second full-sized segment, (SHLD-31) for a gap.
    Now,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Tcp {
    state: State,
    /// First sequence number not acknowledged by the server (SND.UNA).
    una: u32,
    /// Next sequence number to send (SND.NXT). Between `una` and the end of `unacked`, plus one for a FIN.
    nxt: u32,
    /// The furthest `nxt` ever was: a retransmission takes `nxt` back, and the server may acknowledge more.
    sent_end: u32,
    /// Next sequence number expected from the server (RCV.NXT).
    rcv_nxt: u32,
    /// Bytes the server accepts beyond `una`.
    window: u32,
    window_shift: u8,
    mss: usize,
    /// Bytes from `una` on: sent and not acknowledged, then not sent.
    unacked: Vec<u8>,
    /// We will send nothing more: a FIN follows `unacked`. The server's FIN sets it too.
    fin: bool,
    /// The server acknowledged our FIN.
    fin_acked: bool,
    /// The server's FIN arrived.
    peer_fin: bool,
    ack_due: AckDue,
    /// When to retransmit, while something is under way or the window is shut.
    deadline_ns: Option<u64>,
    tries: u32,
}

impl Tcp {
    /// A connection whose SYN is the first thing [`poll_segment`](Tcp::poll_segment) yields.
    pub(crate) fn connect(initial: u32) -> Tcp {
        Tcp {
            state: State::SynSent,
            una: initial,
            nxt: initial,
            sent_end: initial,
            rcv_nxt: 0,
            window: 0,
            window_shift: 0,
            mss: usize::from(MSS_UNSAID),
            unacked: Vec::new(),
            fin: false,
            fin_acked: false,
            peer_fin: false,
            ack_due: AckDue::No,
            deadline_ns: None,
            tries: 0,
        }
    }

    /// Queues bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.state != State::Closed && !self.fin {
            self.unacked.extend_from_slice(bytes);
        }
    }

    /// Sends a FIN after everything written.
    pub(crate) fn close(&mut self) {
        self.fin = true;
    }

    /// Whether the connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether an acknowledgement is owed.
    pub(crate) fn ack_due(&self) -> AckDue {
        self.ack_due
    }

    /// When to call [`handle_timeout`](Tcp::handle_timeout).
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Takes in one segment of the server.
    pub(crate) fn handle_segment<'a>(&mut self, segment: &Segment<'a>) -> Progress<'a> {
        match self.state {
            State::Closed => Progress::None,
            State::SynSent => self.handle_in_syn_sent(segment),
            State::Open => self.handle_in_open(segment),
        }
    }

    fn handle_in_syn_sent(&mut self, segment: &Segment<'_>) -> Progress<'static> {
        if segment.flags & flags::ACK == 0 || self.nxt == self.una {
            return Progress::None;
        }
        if segment.ack != self.una.wrapping_add(1) {
            // RFC 9293 §3.10.7.3: an unacceptable acknowledgement is reset, unless it is a reset.
            let reset = segment.flags & flags::RST != 0;
            return if reset { Progress::None } else { Progress::Stale };
        }
        if segment.flags & flags::RST != 0 {
            return self.end("connection refused");
        }
        if segment.flags & flags::SYN == 0 {
            return Progress::None;
        }
        self.una = segment.ack;
        self.nxt = segment.ack;
        self.rcv_nxt = segment.seq.wrapping_add(1);
        // RFC 7323 §2.2: the window in a SYN is never scaled.
        self.window = u32::from(segment.window);
        self.window_shift = segment.window_scale.unwrap_or(0);
        self.mss = usize::from(segment.mss.unwrap_or(MSS_UNSAID).clamp(64, MSS));
        self.state = State::Open;
        self.ack_due = AckDue::Now;
        self.deadline_ns = None;
        self.tries = 0;
        Progress::Connected
    }

    fn handle_in_open<'a>(&mut self, segment: &Segment<'a>) -> Progress<'a> {
        if segment.flags & flags::RST != 0 {
            // RFC 5961 §3.2: only an exact match resets.
            if segment.seq == self.rcv_nxt {
                return self.end("connection reset by the server");
            }
            return Progress::None;
        }
        if segment.flags & flags::SYN != 0 {
            self.ack_due = AckDue::Now;
            return Progress::None;
        }
        if segment.flags & flags::ACK != 0 {
            self.handle_ack(segment);
        }
        let data = self.take_payload(segment);
        if segment.flags & flags::FIN != 0 {
            let fin_seq = segment.seq.wrapping_add(length(segment.payload));
            if fin_seq == self.rcv_nxt && !self.peer_fin {
                self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
                self.peer_fin = true;
                self.fin = true;
            }
            self.ack_due = AckDue::Now;
        }
        if data.is_empty() { self.finished() } else { Progress::Data(data) }
    }

    /// Over once both FINs are acknowledged. Ask after sending, because our last acknowledgement must go first.
    pub(crate) fn finished(&mut self) -> Progress<'static> {
        let quiet = self.ack_due == AckDue::No && self.state == State::Open;
        if self.peer_fin && self.fin_acked && quiet {
            return self.end("closed");
        }
        Progress::None
    }

    /// The bytes of `segment` that come next; a gap or a repetition is answered with an ACK at once.
    fn take_payload<'a>(&mut self, segment: &Segment<'a>) -> &'a [u8] {
        if segment.payload.is_empty() {
            return &[];
        }
        let seen = self.rcv_nxt.wrapping_sub(segment.seq);
        let Some(fresh) = usize::try_from(seen).ok().and_then(|seen| segment.payload.get(seen..))
        else {
            self.ack_due = AckDue::Now;
            return &[];
        };
        if fresh.is_empty() {
            self.ack_due = AckDue::Now;
            return &[];
        }
        self.rcv_nxt = self.rcv_nxt.wrapping_add(length(fresh));
        let unannounced = match self.ack_due {
            AckDue::Now => usize::MAX,
            AckDue::Later(bytes) => bytes + fresh.len(),
            AckDue::No => fresh.len(),
        };
        let full = 2 * usize::from(MSS);
        self.ack_due = if unannounced < full { AckDue::Later(unannounced) } else { AckDue::Now };
        fresh
    }

    fn handle_ack(&mut self, segment: &Segment<'_>) {
        let acked = segment.ack.wrapping_sub(self.una);
        if acked > self.sent_end.wrapping_sub(self.una) {
            // Acknowledges what was never sent, or is old: neither carries a usable window.
            return;
        }
        self.window = u32::from(segment.window) << self.window_shift;
        self.tries = 0;
        if acked > 0 {
            let acked = acked as usize;
            self.fin_acked |= acked > self.unacked.len();
            self.unacked.drain(..acked.min(self.unacked.len()));
            if self.nxt.wrapping_sub(self.una) < segment.ack.wrapping_sub(self.una) {
                self.nxt = segment.ack;
            }
            self.una = segment.ack;
            if self.una == self.nxt {
                self.deadline_ns = None;
            }
        }
    }

    /// Lets time pass: goes back to the first unacknowledged byte, or gives up.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) -> Progress<'static> {
        if self.deadline_ns.is_none_or(|deadline| now_ns < deadline) {
            return Progress::None;
        }
        if self.tries >= TRIES_MAX {
            return self.end("no answer from the server");
        }
        self.nxt = self.una;
        self.deadline_ns = None;
        if self.window == 0 {
            // RFC 9293 (MUST-36): keep probing, or a lost window update stops us for good.
            self.window = 1;
        }
        Progress::None
    }

    /// The next segment to send, if any.
    pub(crate) fn poll_segment(&mut self, now_ns: u64) -> Option<Segment<'_>> {
        match self.state {
            State::Closed => None,
            State::SynSent => self.poll_syn(now_ns),
            State::Open => self.poll_open(now_ns),
        }
    }

    fn poll_syn(&mut self, now_ns: u64) -> Option<Segment<'_>> {
        if self.nxt != self.una {
            return None;
        }
        self.nxt = self.una.wrapping_add(1);
        self.sent_end = self.nxt;
        self.arm(now_ns);
        Some(Segment {
            seq: self.una,
            flags: flags::SYN,
            window: u16::MAX,
            mss: Some(MSS),
            window_scale: Some(WINDOW_SCALE),
            ..Segment::default()
        })
    }

    fn poll_open(&mut self, now_ns: u64) -> Option<Segment<'_>> {
        let sent = self.nxt.wrapping_sub(self.una) as usize;
        let unsent = self.unacked.len().saturating_sub(sent);
        let room = (self.window as usize).saturating_sub(sent);
        let bytes = unsent.min(room).min(self.mss);
        let fin_now = self.fin && !self.fin_acked && sent + bytes == self.unacked.len();
        if bytes == 0 && !fin_now {
            if unsent > 0 && self.deadline_ns.is_none() {
                self.arm(now_ns);
            }
            if self.ack_due == AckDue::No {
                return None;
            }
        }
        let seq = self.nxt;
        if bytes > 0 || fin_now {
            self.nxt = seq.wrapping_add(length(&self.unacked[sent..sent + bytes]));
            self.nxt = self.nxt.wrapping_add(u32::from(fin_now));
            if self.sent_end.wrapping_sub(self.una) < self.nxt.wrapping_sub(self.una) {
                self.sent_end = self.nxt;
            }
            if self.deadline_ns.is_none() {
                self.arm(now_ns);
            }
        }
        self.ack_due = AckDue::No;
        let push = if bytes > 0 { flags::PSH } else { 0 };
        let fin = if fin_now { flags::FIN } else { 0 };
        let payload = self.unacked.get(sent..sent + bytes).unwrap_or_default();
        Some(Segment {
            seq,
            ack: self.rcv_nxt,
            flags: flags::ACK | push | fin,
            window: u16::MAX,
            payload,
            ..Segment::default()
        })
    }

    fn arm(&mut self, now_ns: u64) {
        let wait = RETRANSMIT_NS.saturating_mul(1 << self.tries.min(10)).min(RETRANSMIT_NS_MAX);
        self.deadline_ns = Some(now_ns + wait);
        self.tries += 1;
    }

    fn end(&mut self, reason: &'static str) -> Progress<'static> {
        self.state = State::Closed;
        self.deadline_ns = None;
        self.ack_due = AckDue::No;
        Progress::Closed(reason)
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a segment or a send buffer is below 4 GiB")
}

#[cfg(test)]
mod tests;
