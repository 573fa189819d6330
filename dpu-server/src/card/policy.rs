//! What a broker's program does after which it may permit something else, as its core is told of it.
//!
//! ```text
//! PolicyChanged, a message, in order with what the broker writes ──┐
//!                                                                  ├──► the greater epoch ──► Core::handle_policy_change
//! PolicyEpochs, asked after each read of a client ─────────────────┘
//! ```
//!
//! The message alone comes in time for whoever learned of the change from the broker: it passes ahead of all that the broker wrote
//! afterwards. Where the program's memory is in reach, as with an agent in this process, the second way holds for everybody: a
//! client's bytes are looked at only when every change before them is known.

use mqttshim_schema::SessionId;

use super::{Card, Session};
use crate::attach::Attach;
use crate::stack::Stack;

/// Programs whose permissions depend on nothing but files, plugins, connections and what clients send, so that no change is missed
/// where the first are told. Others may use a clock, a database, a pipe.
const POLICY_IS_SEEN: [&str; 1] = ["mosquitto"];

/// The epochs of sessions at this very moment.
pub trait PolicyEpochs {
    /// How often what this session's program permits may have changed; 0 where that cannot be seen from here.
    fn policy_epoch(&self, session: SessionId) -> u64;
}

/// Epochs that come as messages only.
#[derive(Clone, Copy, Debug)]
pub struct AsTold;

impl PolicyEpochs for AsTold {
    fn policy_epoch(&self, _: SessionId) -> u64 {
        0
    }
}

impl Session {
    /// Tells the core, if it has not been told of this epoch.
    #[inline]
    pub(super) fn reach_policy_epoch(&mut self, epoch: u64) {
        if epoch > self.policy_epoch {
            self.policy_epoch = epoch;
            self.core.handle_policy_change();
        }
    }
}

impl<A: Attach, S: Stack> Card<A, S> {
    /// A host says how far a session's epoch is; 0 is its promise to say so every time.
    pub(super) fn policy_told(&mut self, session: SessionId, epoch: u64) {
        let index = self.session(session);
        let session = &mut self.sessions[index];
        if epoch == 0 && POLICY_IS_SEEN.contains(&session.program.as_str()) {
            session.core.handle_policy_watched();
        }
        session.reach_policy_epoch(epoch);
    }
}
