//! Segments that leave before the socket is told: for those who send small messages on very many sockets, and do not want to look at
//! each of them for each message.

use super::{AckDelayTimer, Socket, State, TcpSeqNumber, Timer};
use crate::time::{Duration, Instant};

/// What may be sent, and how, until anything else is done with the socket: see [`Socket::allowance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Of the next segment. Segments have no options, and say PSH and ACK.
    pub seq_number: TcpSeqNumber,
    /// Of all of them.
    pub ack_number: TcpSeqNumber,
    /// Of all of them, as it stands in the header.
    pub window_len: u16,
    /// Most octets of one segment.
    pub mss: usize,
    /// Most octets of all of them together.
    pub octets: usize,
    /// When [`Socket::dispatch`] is to be called next. None: nothing is on its way yet, and `delay` tells.
    pub poll_at: Option<Instant>,
    /// How long after the first of these segments [`Socket::dispatch`] is to be called, if nothing was on its way.
    pub delay: Duration,
}

impl Socket<'_> {
    /// Say what may be sent without asking the socket about each segment. None: [`send_slice`](#method.send_slice) and
    /// [`dispatch`](Socket::dispatch) have to be called.
    ///
    /// It holds until the next call of any method that changes the socket. Before that
    /// [`note_sent`](#method.note_sent) has to be called for each segment.
    ///
    /// `mss` is what a packet to the remote end carries beside its headers without options, and the local address is
    /// taken to be the interface's still.
    pub fn allowance(&self, now: Instant, mss: usize) -> Option<Allowance> {
        let in_flight = self.tx_buffer.len();
        let seq_number = self.local_seq_no + in_flight;
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        let expires_at = match self.timer {
            Timer::Idle { .. } => None,
            Timer::Retransmit { expires_at } => Some(expires_at),
            Timer::FastRetransmit | Timer::ZeroWindowProbe { .. } | Timer::Close { .. } => {
                return None;
            }
        };
        let is_repairing =
            self.pending_fast_retransmit || self.in_fast_recovery || self.has_selective_acks;
        if !is_open || self.remote_last_seq != seq_number || is_repairing {
            return None;
        }
        // A timestamp would be an option; whoever waits for company asks about each segment.
        if self.tsval_generator.is_some() || self.nagle {
            return None;
        }
        let silence_ends_at = match (self.remote_last_ts, self.timeout) {
            (Some(heard_at), Some(timeout)) if in_flight > 0 => Some(heard_at + timeout),
            _ => None,
        };
        let poll_at = expires_at.into_iter().chain(silence_ends_at).min();
        if poll_at.is_some_and(|at| at <= now) {
            return None;
        }
        let window = self.remote_win_len.saturating_sub(in_flight).min(self.tx_buffer.window());
        let rto = self.rtte.retransmission_timeout();
        Some(Allowance {
            seq_number,
            ack_number: self.remote_seq_no + self.rx_buffer.len(),
            window_len: self.scaled_window(),
            mss: mss.min(self.remote_mss),
            octets: window.min(self.cwnd_remaining()),
            poll_at,
            delay: self.timeout.map_or(rto, |timeout| rto.min(timeout)),
        })
    }

    /// Note that a segment with so many octets left at `at`, as the [allowance](#method.allowance) had it.
    ///
    /// All is then as if [`send_slice`](#method.send_slice) had taken the octets and [`dispatch`](Socket::dispatch) had
    /// emitted that segment; but the octets themselves are [owed](#method.owed): until they are [paid](#method.pay) or
    /// acknowledged [`process`](Socket::process) may be called, and nothing else that changes the socket.
    ///
    /// # Panics
    /// Panics if the buffer has no room for so many; an allowance keeps to it.
    #[inline]
    pub fn note_sent(&mut self, at: Instant, octets: usize) {
        if self.tx_buffer.is_empty() || self.remote_last_ts.is_none() {
            self.remote_last_ts = Some(at);
        }
        self.congestion_controller.inner_mut().pre_transmit(at);
        self.tx_buffer.owe(octets);
        self.ack_delay_timer = AckDelayTimer::Idle;
        self.remote_last_seq = self.local_seq_no + self.tx_buffer.len();
        self.remote_last_ack = Some(self.remote_seq_no + self.rx_buffer.len());
        self.remote_last_win = self.scaled_window();
        self.rtte.on_send(at, self.remote_last_seq);
        self.congestion_controller.inner_mut().post_transmit(at, octets);
        if !self.timer.is_retransmit() {
            self.timer.set_for_retransmit(at, self.rtte.retransmission_timeout());
        }
    }

    /// Return how many octets are owed: the last ones of those that left, as far as they are neither acknowledged nor paid.
    #[inline]
    pub fn owed(&self) -> usize {
        self.tx_buffer.owed()
    }

    /// Give the oldest octets that are owed: they may have to be sent again.
    ///
    /// # Panics
    /// Panics if fewer are owed.
    #[inline]
    pub fn pay(&mut self, data: &[u8]) {
        self.tx_buffer.pay(data);
    }
}
