//! Copies on their way past the outboxes: to subscribers for whom nothing waits, while their publisher's bytes are looked at.
//!
//! ```text
//! handle_client_directly ─► deliveries: (connection, copy) … ─► the driver sends each whole, or refuses it
//!                                                          └─► settle_direct: what was refused waits in its outbox
//! ```
//!
//! An outbox costs a queue's entry, a reference and a place on the list of dirty connections, all of which are gone a moment
//! later. A delivery costs eight bytes of one list. Order holds because a copy goes this way only while the subscriber's outbox
//! is empty: it is before all that comes there later, and what is refused goes to the front. The driver is done with all
//! deliveries before anything else happens.
//!
//! The list is bounded: what one read adds to it beyond that waits in outboxes, where the bounds of these hold.

use super::ConnId;
use super::config::Limits;
use super::packet::Encoded;

/// Deliveries that may be listed before one more PUBLISH adds its own: two megabytes.
const DELIVERIES_MAX: usize = 1 << 18;
/// Bytes that are listed for one subscriber, at most: as many as a send buffer usually takes. A few bytes from a publisher may become a
/// long copy, by a Topic Alias.
const EACH_BYTES_MAX: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Direct {
    /// One a variant and QoS of each PUBLISH, those that somebody gets.
    pub(crate) copies: Vec<Option<Encoded>>,
    pub(crate) deliveries: Vec<(ConnId, u32)>,
    /// Bytes for whoever gets most, at most.
    each_bytes: usize,
}

impl Direct {
    /// Whether nobody gets anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Every delivery in order: to whom, which copy, and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, u32, &[u8])> + Clone {
        self.deliveries.iter().map(|&(conn, copy)| {
            let bytes = self.copies[copy as usize].as_ref().map_or(&[][..], |it| &it.packet);
            (conn, copy, bytes)
        })
    }

    /// To whom the delivery at this place goes, and its copy.
    pub(crate) fn delivery(&self, place: u32) -> (ConnId, Option<&Encoded>) {
        let (conn, copy) = self.deliveries[place as usize];
        (conn, self.copies[copy as usize].as_ref())
    }

    /// Whether deliveries of one more PUBLISH may be listed, of copies of at most so many bytes. What is refused of the list may be as much
    /// as one outbox takes, and no more.
    pub(crate) fn has_room(&self, bytes: usize, limits: &Limits) -> bool {
        let each_bytes_max = EACH_BYTES_MAX.min(limits.outbox_bytes_max);
        self.deliveries.len() < DELIVERIES_MAX && self.each_bytes + bytes <= each_bytes_max
    }

    /// The copies from the place `first` on are of a PUBLISH that is done, and have at most so many bytes. `before`: deliveries before it.
    pub(crate) fn close(&mut self, first: usize, before: usize, bytes: usize) {
        if self.deliveries.len() == before {
            self.copies.truncate(first);
        } else {
            self.each_bytes += bytes;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.copies.clear();
        self.deliveries.clear();
        self.each_bytes = 0;
    }
}
