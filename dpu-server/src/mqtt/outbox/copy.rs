//! One copy that waits: bytes shared with other outboxes, and the few that are this one's own.
//!
//! ```text
//! shared:  32 … topic ┊ 00 00 ┊ properties … 02 ┊ 00 00 00 3c ┊ payload …
//! own:                  ff fe                     00 00 00 1e
//! ```
//!
//! Own are the Packet Identifier and how long the copy may still wait. Only a copy of which no byte was sent yet may change, or be
//! dropped.

use std::time::Instant;

use bytes::Bytes;

use crate::mqtt::packet::{Encoded, ExpiryField};

/// Pieces of one copy.
const PIECES_MAX: usize = 5;

/// A copy that is not like every other one.
#[derive(Debug)]
pub(super) struct OwnCopy {
    packet: Bytes,
    /// Bytes of it that were sent.
    sent: usize,
    /// Place and value of the Packet Identifier.
    id: Option<(usize, [u8; 2])>,
    expiry: Option<Expiry>,
}

#[derive(Debug)]
struct Expiry {
    field: ExpiryField,
    /// What stands in the field.
    left: [u8; 4],
    since: Instant,
}

impl OwnCopy {
    /// `id` belongs to a copy that has a place for it. It waits `since` then.
    pub(super) fn new(encoded: &Encoded, id: Option<u16>, since: Instant) -> Self {
        let expiry = encoded.expiry.map(|field| {
            let left = field.seconds.to_be_bytes();
            Expiry { field, left, since }
        });
        let id = encoded.id_at.zip(id.map(u16::to_be_bytes));
        Self { packet: encoded.packet.clone(), sent: 0, id, expiry }
    }

    /// Bytes that are still to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.packet.len() - self.sent
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.sent += n;
    }

    pub(super) fn may_expire(&self) -> bool {
        self.expiry.is_some()
    }

    /// Its Packet Identifier.
    pub(super) fn id(&self) -> Option<u16> {
        self.id.map(|(_, id)| u16::from_be_bytes(id))
    }

    pub(super) fn pieces(&self) -> Pieces<'_> {
        let (head, id, rest) = match &self.id {
            Some((at, id)) => {
                let (head, rest) = self.packet.split_at(*at);
                (head, &id[..], &rest[id.len()..])
            }
            None => (&[][..], &[][..], &self.packet[..]),
        };
        let (middle, expiry, tail) = match &self.expiry {
            Some(Expiry { field: ExpiryField { at: Some(at), .. }, left, .. }) => {
                let (middle, rest) = rest.split_at(at - head.len() - id.len());
                (middle, &left[..], &rest[left.len()..])
            }
            _ => (rest, &[][..], &[][..]),
        };
        Pieces::new([head, id, middle, expiry, tail], self.sent)
    }

    /// Counts down what it may still wait, in whole seconds [MQTT-3.3.2-6]; whether that is over [MQTT-3.3.2-5].
    pub(super) fn count_down(&mut self, now: Instant) -> bool {
        let Some(expiry) = self.expiry.as_mut().filter(|_| self.sent == 0) else { return false };
        let left_s = expiry.field.left_s(expiry.since, now);
        expiry.left = left_s.to_be_bytes();
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
    #[inline]
    pub(super) fn one(piece: &'a [u8]) -> Self {
        Self { pieces: [&[], &[], &[], &[], piece], next: PIECES_MAX - 1 }
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
