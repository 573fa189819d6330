//! A message becomes bytes.
//!
//! ```text
//!            ┌ Data, Credit, Blocked ──► stream.rs: written word by word, no allocation
//! Message ───┤
//!            └ every other ────────────► control.rs: Cap'n Proto's builder, one segment
//! ```
//!
//! Wire form: Cap'n Proto's flat form (capnproto.org/encoding.html, "Serialization Over a Stream") with one segment: eight
//! bytes of header, then the segment. Refuses what [`decode()`](crate::decode()) would refuse.

use crate::{MESSAGE_BYTES_MAX, Message, Violation, rules};

mod control;
mod stream;

/// Why a message was not encoded. A fault of this side's.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// The message breaks a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Writes one message into `out`, which is cleared first and keeps its capacity.
///
/// The result may still be larger than the channel in use carries: Bind, Listen and Connect with many options are.
///
/// # Errors
/// [`EncodeError`]; `out` is empty then.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.clear();
    match *message {
        Message::Data { socket, stamp, read, bytes } => {
            stream::data(socket, stamp, read, rules::stream_bytes(bytes)?, out);
        }
        Message::Credit { socket, bytes } => stream::credit(socket, rules::credit(bytes)?, out),
        Message::Blocked { socket, stamp } => stream::blocked(socket, stamp, out),
        _ => control::write(message, out)?,
    }
    debug_assert!(out.len() <= MESSAGE_BYTES_MAX, "the limits of its parts keep a message below");
    Ok(())
}

#[cfg(test)]
mod tests;
