//! The way to the host: one channel end, and what waits for room on it.
//!
//! ```text
//! message ──encode──► channel.send ──► taken
//!                          └─ full ──► [ waiting, in order, at most WAITING_MAX ] ──flush──► channel.send
//! ```
//!
//! Of stream data only the piece that met a full channel waits here; the rest stays where it is until there is room
//! ([`Outgoing::data`] takes nothing while anything waits). What else can wait is bounded by what the host may cause: a few
//! messages a socket and one a request. More than [`WAITING_MAX`] means that the host asks and does not read; the channel
//! is given up then.

use std::collections::VecDeque;

use mqttshim_channel::{CommChannel, RecvError, SendError};
use mqttshim_schema::{DATA_OVERHEAD_BYTES, Message, SocketId, Stamp, encode};

/// Messages that may wait for room.
const WAITING_MAX: usize = 262_144;

/// Why the channel cannot be used any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Broken {
    /// The other end is gone.
    #[error("the host's end of the channel is gone")]
    Gone,
    /// It asks and does not read.
    #[error("the host does not read: {WAITING_MAX} messages wait")]
    Overrun,
    /// A message is larger than both sides agreed on.
    #[error("a message of {bytes} bytes does not fit the channel")]
    Size {
        /// Its length.
        bytes: usize,
    },
}

/// See the module.
pub(super) struct Outgoing {
    channel: Box<dyn CommChannel>,
    max_message_bytes: usize,
    scratch: Vec<u8>,
    waiting: VecDeque<Vec<u8>>,
    stamp: Stamp,
    broken: Option<Broken>,
    /// Messages handed to the channel.
    pub(super) sent: u64,
}

impl Outgoing {
    pub(super) fn new(channel: Box<dyn CommChannel>) -> Outgoing {
        let max_message_bytes = channel.max_message_bytes();
        Outgoing {
            channel,
            max_message_bytes,
            scratch: Vec::with_capacity(max_message_bytes),
            waiting: VecDeque::new(),
            stamp: 0,
            broken: None,
            sent: 0,
        }
    }

    pub(super) fn channel(&self) -> &dyn CommChannel {
        &*self.channel
    }

    pub(super) fn recv(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Broken> {
        match self.channel.recv(buffer) {
            Ok(()) => Ok(true),
            Err(RecvError::Empty) => Ok(false),
            Err(RecvError::Lost) => Err(Broken::Gone),
        }
    }

    /// What both Hellos agreed on.
    pub(super) fn set_max_message_bytes(&mut self, bytes: usize) {
        self.max_message_bytes = bytes.min(self.channel.max_message_bytes());
    }

    /// The next place in the card's order.
    pub(super) fn stamp(&mut self) -> Stamp {
        self.stamp += 1;
        self.stamp
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() || self.broken.is_some()
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Sends, or lets the message wait behind those that already do.
    pub(super) fn send(&mut self, message: &Message<'_>) {
        if self.broken.is_some() {
            return;
        }
        encode(message, &mut self.scratch)
            .expect("the card's own messages keep the schema's rules");
        if self.scratch.len() > self.max_message_bytes {
            self.broken = Some(Broken::Size { bytes: self.scratch.len() });
        } else if !self.waiting.is_empty() || !self.try_scratch() {
            self.waiting.push_back(self.scratch.clone());
            if self.waiting.len() > WAITING_MAX {
                self.broken = Some(Broken::Overrun);
            }
        }
    }

    /// Sends as many stream bytes as the channel takes now.
    pub(super) fn data(&mut self, socket: SocketId, bytes: &[u8]) -> usize {
        let piece_max = self.max_message_bytes - DATA_OVERHEAD_BYTES;
        let mut taken = 0;
        for piece in bytes.chunks(piece_max) {
            if self.is_blocked() {
                break;
            }
            let message = Message::Data { socket, stamp: self.stamp + 1, read: 0, bytes: piece };
            encode(&message, &mut self.scratch).expect("a piece of data has at least one byte");
            self.stamp += 1;
            taken += piece.len();
            if !self.try_scratch() {
                // The one piece that waits marks the channel as full.
                self.waiting.push_back(self.scratch.clone());
            }
        }
        taken
    }

    /// Sends what waits. True if anything left.
    pub(super) fn flush(&mut self) -> bool {
        let before = self.sent;
        while self.broken.is_none()
            && let Some(first) = self.waiting.pop_front()
        {
            self.scratch.clear();
            self.scratch.extend_from_slice(&first);
            if !self.try_scratch() {
                self.waiting.push_front(first);
                break;
            }
        }
        self.sent != before
    }

    /// Hands `scratch` to the channel; false when there is no room or no channel.
    fn try_scratch(&mut self) -> bool {
        match self.channel.give(&mut self.scratch) {
            Ok(()) => {
                self.sent += 1;
                true
            }
            Err(SendError::WouldBlock) => false,
            Err(SendError::Lost) => {
                self.broken = Some(Broken::Gone);
                false
            }
            Err(SendError::Size { bytes, .. }) => {
                self.broken = Some(Broken::Size { bytes });
                false
            }
        }
    }
}
