//! The Comm Channel: whole messages between one host and one card, in order.
//!
//! ```text
//! host end ──send──► [ bounded queue ] ──recv──► card end        and the same the other way
//! ```
//!
//! Two implementations: [`in_process`] (both ends in one process) and [`emulated`] (two processes on one machine, with the
//! limits and failure modes of NVIDIA's DOCA Comch). A message is opaque bytes here; `mqttshim-schema` gives it meaning.
//!
//! Bounds: a message has at most [`CommChannel::max_message_bytes`], a queue is bounded and says
//! [`SendError::WouldBlock`] when it is full. No implementation allocates once its buffers have their size.

#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;

pub mod emulated;
pub mod in_process;

/// One end of a channel.
///
/// Messages arrive whole, once and in order, or the channel is [`Lost`](RecvError::Lost). Never blocks.
pub trait CommChannel {
    /// Largest message this channel carries, in bytes. DOCA: 4080 on BlueField.
    fn max_message_bytes(&self) -> usize;

    /// Hands over one message.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when the queue is full: nothing was taken. Try again once [`readiness`]'s descriptor is
    /// writable, or, where there is none, once the other end has received.
    ///
    /// [`readiness`]: CommChannel::readiness
    fn send(&mut self, message: &[u8]) -> Result<(), SendError>;

    /// Hands over one message as [`send`](CommChannel::send) does. When it was taken, `message` holds anything: a channel that queues
    /// whole buffers keeps this one and leaves another, so that nothing is copied.
    ///
    /// # Errors
    /// As [`send`](CommChannel::send); `message` is unchanged then.
    fn give(&mut self, message: &mut Vec<u8>) -> Result<(), SendError> {
        self.send(message)
    }

    /// Takes one message into `buffer`, whose old content is gone whatever the outcome. Its allocation is reused or
    /// exchanged for one of the channel's own: pass the same buffer again and nothing is allocated.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when there is none.
    fn recv(&mut self, buffer: &mut Vec<u8>) -> Result<(), RecvError>;

    /// A descriptor for an epoll set: readable when [`recv`](CommChannel::recv) may have something or the other end is gone,
    /// writable when [`send`](CommChannel::send) may go on after a `WouldBlock`. Watch it for writing only then. `None`
    /// when both ends live in one loop and are polled by it.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SendError {
    /// The queue is full.
    #[error("the channel's queue is full")]
    WouldBlock,
    /// The message is larger than [`CommChannel::max_message_bytes`], or empty.
    #[error("a message of {bytes} bytes does not fit the channel's limit of {limit}")]
    Size {
        /// The message's length.
        bytes: usize,
        /// The channel's limit.
        limit: usize,
    },
    /// The other end is gone.
    #[error("the other end of the channel is gone")]
    Lost,
}

/// Why no message was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecvError {
    /// None is waiting.
    #[error("no message is waiting")]
    Empty,
    /// The other end is gone and every message it sent has been taken.
    #[error("the other end of the channel is gone")]
    Lost,
}
