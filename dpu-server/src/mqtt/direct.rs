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
//! Of one read only the first PUBLISH that can goes this way, so that the list is as long as one fan-out: those behind it wait in
//! outboxes, where their bounds hold, and leave together, many in a segment.

use super::ConnId;
use super::packet::Encoded;

/// See the module.
#[derive(Debug, Default)]
pub struct Direct {
    /// One a variant and QoS of the PUBLISH, those that somebody gets.
    pub(crate) copies: Vec<Option<Encoded>>,
    pub(crate) deliveries: Vec<(ConnId, u32)>,
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

    /// A PUBLISH is done, whose copies are those from the place `first` on. `before`: deliveries before it.
    pub(crate) fn close(&mut self, first: usize, before: usize) {
        if self.deliveries.len() == before {
            self.copies.truncate(first);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.copies.clear();
        self.deliveries.clear();
    }
}
