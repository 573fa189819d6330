//! One copy that waits: bytes shared with other outboxes, and the few that are this one's own.
//!
//! ```text
//! shared:  30 … topic … properties … 02 ┊ 00 00 00 3c ┊ payload …       own: 00 00 00 1e, how long it may still wait
//! pieces:  └──────────── 0 ───────────┘   └──── 1 ───┘  └── 2 ──┘
//! ```
//!
//! Only a copy of which no byte was sent yet may change, or be dropped.

use std::time::Instant;

use bytes::Bytes;

use crate::mqtt::packet::{Encoded, ExpiryField};

/// Pieces of one copy.
const PIECES_MAX: usize = 3;

/// A copy that says, or counts, how long it may wait.
#[derive(Debug)]
pub(super) struct Expiring {
    packet: Bytes,
    /// Bytes of it that were sent.
    sent: usize,
    field: ExpiryField,
    /// What stands in the field.
    left: [u8; 4],
    since: Instant,
}

impl Expiring {
    pub(super) fn new(encoded: &Encoded, field: ExpiryField, now: Instant) -> Self {
        let left = field.seconds.to_be_bytes();
        Self { packet: encoded.packet.clone(), sent: 0, field, left, since: now }
    }

    /// Bytes that are still to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.packet.len() - self.sent
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.sent += n;
    }

    pub(super) fn pieces(&self) -> Pieces<'_> {
        let at = self.field.at.unwrap_or(self.packet.len());
        let (head, rest) = self.packet.split_at(at);
        let field = &self.left[..rest.len().min(self.left.len())];
        Pieces::new([head, field, &rest[field.len()..]], self.sent)
    }

    /// Counts down what it may still wait, in whole seconds [MQTT-3.3.2-6]; whether that is over [MQTT-3.3.2-5].
    pub(super) fn count_down(&mut self, now: Instant) -> bool {
        if self.sent > 0 {
            return false;
        }
        let waited_s = now.saturating_duration_since(self.since).as_secs();
        let left_s = u64::from(self.field.seconds).saturating_sub(waited_s);
        // No more than the field's own.
        self.left = (left_s as u32).to_be_bytes();
        left_s == 0
    }
}

/// The pieces of a copy in order, none of them empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    pieces: [&'a [u8]; PIECES_MAX],
    next: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn one(piece: &'a [u8]) -> Self {
        Self { pieces: [&[], &[], piece], next: PIECES_MAX - 1 }
    }

    fn new(mut pieces: [&'a [u8]; PIECES_MAX], mut sent: usize) -> Self {
        for piece in &mut pieces {
            let gone = sent.min(piece.len());
            *piece = &piece[gone..];
            sent -= gone;
        }
        Self { pieces, next: 0 }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let piece = *self.pieces.get(self.next)?;
            self.next += 1;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }
}
