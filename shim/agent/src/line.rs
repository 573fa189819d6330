//! The way of messages to the card, in one order.
//!
//! What the channel has no room for waits here; while anything waits, nothing overtakes it.

use std::collections::VecDeque;

use mqttshim_channel::{CommChannel, SendError};
use mqttshim_schema::Message;

/// The message does not fit the channel at all, for example a Bind with very many options.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the message does not fit the channel")]
pub(crate) struct TooLarge;

/// Encodes and sends, or keeps.
#[derive(Default)]
pub(crate) struct Line {
    backlog: VecDeque<Vec<u8>>,
    encoded: Vec<u8>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.backlog.clear();
    }

    /// Keeps a message until the next [`flush`](Self::flush).
    pub(crate) fn queue(&mut self, message: &Message<'_>) -> Result<(), TooLarge> {
        let mut encoded = Vec::new();
        mqttshim_schema::encode(message, &mut encoded).map_err(|_| TooLarge)?;
        self.backlog.push_back(encoded);
        Ok(())
    }

    /// Sends a message, behind what waits.
    pub(crate) fn emit(
        &mut self,
        channel: &mut dyn CommChannel,
        message: &Message<'_>,
    ) -> Result<(), TooLarge> {
        if !self.backlog.is_empty() {
            return self.queue(message);
        }
        mqttshim_schema::encode(message, &mut self.encoded).map_err(|_| TooLarge)?;
        match channel.give(&mut self.encoded) {
            Ok(()) => Ok(()),
            Err(SendError::WouldBlock) => {
                self.backlog.push_back(std::mem::take(&mut self.encoded));
                Ok(())
            }
            Err(SendError::Size { .. }) => Err(TooLarge),
            // Found again, with what follows from it, by the next receive.
            Err(SendError::Lost) => Ok(()),
        }
    }

    /// Sends what waits. Says whether anything left. A kept message that does not fit is handed to `too_large`.
    pub(crate) fn flush(
        &mut self,
        channel: &mut dyn CommChannel,
        mut too_large: impl FnMut(&[u8]),
    ) -> bool {
        let mut has_moved = false;
        while let Some(message) = self.backlog.front() {
            match channel.send(message) {
                Err(SendError::WouldBlock) => break,
                Err(SendError::Size { .. }) => too_large(message),
                Ok(()) | Err(SendError::Lost) => {}
            }
            self.backlog.pop_front();
            has_moved = true;
        }
        has_moved
    }
}
