//! What RFC 9293 and RFC 5961 want of a segment that belongs to an established connection, and smoltcp does not do.
//!
//! | segment | smoltcp 0.14 | here |
//! |---|---|---|
//! | SYN | dropped without a word: a rebooted client of the same port hangs | an acknowledgement, by which such a client finds out (RFC 5961 §4.2); in TIME-WAIT a newer one opens a new connection (RFC 9293 §3.10.7.4) |
//! | RST, in the window but not the next number | ends the connection: 2³² / window guesses do | an acknowledgement (RFC 5961 §3.2) |
//! | an acknowledgement older than the last | dropped with the bytes it carries | the bytes count (RFC 9293 §3.10.7.4); by itself it tells nothing, and is no duplicate of the last (RFC 5681 §2) |
//! | bytes behind the client's FIN | are received | are not (RFC 9293 §3.10.7.4, seventh) |
//! | a window in a segment overtaken by a newer one | counts | does not (SND.WL1, SND.WL2: RFC 9293 §3.10.7.4) |
//!
//! Pure: numbers in, a verdict out.

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber as Number};

/// How much older than the last an acknowledgement may be: the largest window there is (RFC 5961 §5.2, RFC 7323 §2.3).
const ANCIENT: i32 = 1 << 30;

/// Where a synchronised connection stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// RCV.NXT.
    pub(super) expected: Number,
    /// Bytes that may come from there on.
    pub(super) receive_window: usize,
    /// SND.UNA.
    pub(super) unacknowledged: Number,
    /// Behind all there is to send, a FIN included: more cannot be acknowledged.
    pub(super) end: Number,
    /// In TIME-WAIT.
    pub(super) is_waiting: bool,
    /// The client's FIN came.
    pub(super) has_ended: bool,
}

/// The segment that told the window last (SND.WL1, SND.WL2), and what it said, unscaled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    sequence: Number,
    acknowledged: Number,
    window: u16,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Drop,
    /// Answer with an acknowledgement.
    Challenge,
    /// The old connection is over; this opens the next.
    Reopen,
    /// Let it in, as it says now.
    Pass,
}

/// Judges a segment of a connection that is synchronised, and puts right what it says of acknowledgement and window. `told` is
/// kept current.
pub(super) fn judge(says: &mut TcpRepr<'_>, place: &Place, told: &mut Option<Told>) -> Verdict {
    match says.control {
        TcpControl::Rst => return judge_reset(says, place),
        TcpControl::Syn => {
            let is_newer = says.seq_number > place.expected && says.ack_number.is_none();
            return if place.is_waiting && is_newer { Verdict::Reopen } else { Verdict::Challenge };
        }
        TcpControl::None | TcpControl::Psh | TcpControl::Fin => {}
    }
    // Every segment of a synchronised connection acknowledges (RFC 9293 §3.10.7.4).
    let Some(acknowledged) = says.ack_number else { return Verdict::Drop };
    let is_old = acknowledged < place.unacknowledged;
    if is_old && distance(acknowledged, place.unacknowledged) > ANCIENT {
        return Verdict::Challenge;
    }
    // Nor does it tell a window, or anybody could tell one for ever.
    if acknowledged > place.end {
        return Verdict::Challenge;
    }
    if is_old && place.is_bare(says) {
        return Verdict::Drop;
    }
    match told {
        Some(told) if is_old || told.is_newer_than(says.seq_number, acknowledged) => {
            says.window_len = told.window;
        }
        // What is not acceptable tells nothing, or anybody could tell a window for ever.
        _ if place.accepts(says) => {
            let (sequence, window) = (says.seq_number, says.window_len);
            *told = Some(Told { sequence, acknowledged, window });
        }
        _ => {}
    }
    if is_old {
        says.ack_number = Some(place.unacknowledged);
    }
    if place.has_ended {
        says.payload = &[];
    }
    Verdict::Pass
}

fn judge_reset(says: &TcpRepr<'_>, place: &Place) -> Verdict {
    if says.seq_number == place.expected {
        return Verdict::Pass;
    }
    let ahead = distance(place.expected, says.seq_number);
    let is_within = ahead >= 0 && (ahead as usize) < place.receive_window;
    if is_within { Verdict::Challenge } else { Verdict::Drop }
}

impl Place {
    /// Whether any of a segment is what may come next (RFC 9293 §3.4, table 6).
    pub(super) fn accepts(&self, says: &TcpRepr<'_>) -> bool {
        let begins = distance(self.expected, says.seq_number);
        let ends = i64::from(begins) + says.payload.len() as i64;
        i64::from(begins) < self.receive_window.max(1) as i64 && ends >= 0
    }

    /// Whether a segment has nothing but its acknowledgement to tell.
    fn is_bare(&self, says: &TcpRepr<'_>) -> bool {
        says.payload.is_empty() && says.control != TcpControl::Fin && self.accepts(says)
    }
}

impl Told {
    /// Whether a segment with these numbers was overtaken by the one that told (RFC 9293 §3.10.7.4).
    fn is_newer_than(&self, sequence: Number, acknowledged: Number) -> bool {
        sequence < self.sequence || (sequence == self.sequence && acknowledged < self.acknowledged)
    }
}

/// From one number to another, the short way.
pub(super) fn distance(from: Number, to: Number) -> i32 {
    to.0.wrapping_sub(from.0)
}
