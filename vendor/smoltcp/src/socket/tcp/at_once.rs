//! One segment, without the buffer's detour: for those who send small messages on very many sockets.

use super::{AckDelayTimer, Socket, State, TcpSeqNumber, Timer};
use crate::time::Instant;

/// How a segment looks that [`Socket::send_at_once`] let go, but for what all of a connection's have in common: it has no
/// options, and says PSH and ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtOnce {
    pub seq_number: TcpSeqNumber,
    pub ack_number: TcpSeqNumber,
    /// As it stands in the header.
    pub window_len: u16,
    /// When [`Socket::dispatch`] is to be called next.
    pub poll_at: Instant,
}

impl Socket<'_> {
    /// Put `data` into the transmit buffer and say how the segment looks that carries it, if that is one, and can
    /// be sent now.
    ///
    /// The caller has to send it. All is then as if [`send_slice`](#method.send_slice) had taken the data and
    /// [`dispatch`](Socket::dispatch) had emitted that one segment (which it cuts in two where the
    /// buffer goes round). In every other case the answer is `None`, and nothing has changed:
    /// these two have to be called.
    ///
    /// `mss` is what a packet to the remote end carries beside its headers without options, and the local address is
    /// taken to be the interface's still.
    #[inline]
    pub fn send_at_once(&mut self, now: Instant, mss: usize, data: &[u8]) -> Option<AtOnce> {
        let was_empty = self.tx_buffer.is_empty();
        let next = self.local_seq_no + self.tx_buffer.len();
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        let is_timer_quiet = match self.timer {
            Timer::Idle { .. } => true,
            Timer::Retransmit { expires_at } => expires_at > now,
            Timer::FastRetransmit | Timer::ZeroWindowProbe { .. } | Timer::Close { .. } => false,
        };
        let is_repairing =
            self.pending_fast_retransmit || self.in_fast_recovery || self.has_selective_acks;
        let is_in_step = self.remote_last_seq == next && !is_repairing;
        if !is_open || !is_timer_quiet || !is_in_step || data.is_empty() {
            return None;
        }
        // A timestamp would be an option.
        if self.tsval_generator.is_some() || (self.nagle && !was_empty) {
            return None;
        }
        if !was_empty && self.timed_out(now) {
            return None;
        }
        let in_flight = self.tx_buffer.len();
        let window = self.remote_win_len.saturating_sub(in_flight).min(self.tx_buffer.window());
        if data.len() > window.min(mss).min(self.remote_mss) {
            return None;
        }
        self.congestion_controller.inner_mut().pre_transmit(now);
        if data.len() > self.cwnd_remaining() {
            return None;
        }

        let taken = self.tx_buffer.enqueue_slice(data);
        debug_assert_eq!(taken, data.len());
        if was_empty || self.remote_last_ts.is_none() {
            self.remote_last_ts = Some(now);
        }
        let ack_number = self.remote_seq_no + self.rx_buffer.len();
        let window_len = self.scaled_window();
        self.ack_delay_timer = AckDelayTimer::Idle;
        self.remote_last_seq = next + data.len();
        self.remote_last_ack = Some(ack_number);
        self.remote_last_win = window_len;
        self.rtte.on_send(now, self.remote_last_seq);
        self.congestion_controller.inner_mut().post_transmit(now, data.len());
        if !self.timer.is_retransmit() {
            self.timer.set_for_retransmit(now, self.rtte.retransmission_timeout());
        }
        Some(AtOnce { seq_number: next, ack_number, window_len, poll_at: self.timer_at(now) })
    }

    /// When the retransmission timer, which runs, or the timeout expires.
    fn timer_at(&self, now: Instant) -> Instant {
        let expires_at = match self.timer {
            Timer::Retransmit { expires_at } => expires_at,
            _ => now,
        };
        match (self.remote_last_ts, self.timeout) {
            (Some(heard_at), Some(timeout)) => expires_at.min(heard_at + timeout),
            _ => expires_at,
        }
    }

    /// Where the next octets that are to be sent will lie: for whoever wants to ask for that memory ahead.
    #[inline]
    pub fn send_place(&self) -> *const u8 {
        self.tx_buffer.place()
    }
}
