//! What RFC 9293 and RFC 5961 want of a segment that belongs to an established connection, and smoltcp does not do.
//!
//! | segment | smoltcp 0.14 | here |
//! |---|---|---|
//! | SYN | dropped without a word: a rebooted client of the same port hangs | an acknowledgement, by which such a client finds out (RFC 5961 §4.2); in TIME-WAIT a newer one opens a new connection (RFC 9293 §3.10.7.4) |
//! | RST, in the window but not the next number | ends the connection: 2³² / window guesses do | an acknowledgement (RFC 5961 §3.2) |
//! | an acknowledgement older than the last | dropped with the bytes it carries | the bytes count (RFC 9293 §3.10.7.4) |
//! | a window in a segment overtaken by a newer one | counts | does not (SND.WL1, SND.WL2: RFC 9293 §3.10.7.4) |
//!
//! Pure: numbers in, a verdict out.

use smoltcp::wire::TcpSeqNumber as Number;

use super::segment::Segment;

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
    /// In TIME-WAIT.
    pub(super) is_waiting: bool,
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
    /// Let it in, with these in the place of its own.
    Pass {
        /// The acknowledgement.
        acknowledged: Option<Number>,
        /// The window.
        window: Option<u16>,
    },
}

/// Judges a segment of a connection that is synchronised. `told` is kept current.
pub(super) fn judge(segment: &Segment, place: &Place, told: &mut Option<Told>) -> Verdict {
    if segment.rst {
        return judge_reset(segment, place);
    }
    if segment.syn {
        let is_newer = segment.sequence > place.expected && segment.acknowledged.is_none();
        return if place.is_waiting && is_newer { Verdict::Reopen } else { Verdict::Challenge };
    }
    // Every segment of a synchronised connection acknowledges (RFC 9293 §3.10.7.4).
    let Some(acknowledged) = segment.acknowledged else { return Verdict::Drop };
    let is_old = acknowledged < place.unacknowledged;
    if is_old && distance(acknowledged, place.unacknowledged) > ANCIENT {
        return Verdict::Challenge;
    }
    let window = match told {
        Some(told) if is_old => Some(told.window),
        _ => window_of(segment, acknowledged, told),
    };
    Verdict::Pass { acknowledged: is_old.then_some(place.unacknowledged), window }
}

fn judge_reset(segment: &Segment, place: &Place) -> Verdict {
    if segment.sequence == place.expected {
        return Verdict::Pass { acknowledged: None, window: None };
    }
    let ahead = distance(place.expected, segment.sequence);
    let is_within = ahead >= 0 && (ahead as usize) < place.receive_window;
    if is_within { Verdict::Challenge } else { Verdict::Drop }
}

/// The window to put in the place of the segment's own, if that was overtaken.
fn window_of(segment: &Segment, acknowledged: Number, told: &mut Option<Told>) -> Option<u16> {
    if let Some(told) = told
        && (segment.sequence < told.sequence
            || (segment.sequence == told.sequence && acknowledged < told.acknowledged))
    {
        return Some(told.window);
    }
    *told = Some(Told { sequence: segment.sequence, acknowledged, window: segment.window });
    None
}

/// From one number to another, the short way.
pub(super) fn distance(from: Number, to: Number) -> i32 {
    to.0.wrapping_sub(from.0)
}
