//! Bytes become a message, or an error that says why not.
//!
//! ```text
//! bytes ──► header: one segment, exactly as long as it says ──► members.rs: Cap'n Proto's reader, our rules ──► Message<'_>
//! ```
//!
//! Foreign bytes never panic and never cost more than their own length: the reader may traverse as many words as the
//! message has and go four levels deep, and lists are counted before anything is allocated. Byte strings are borrowed from
//! the input, which may start at any address. Only the list of options in Bind, Listen and Connect is allocated.

use capnp::message::{Reader, ReaderOptions, SegmentArray};

use crate::{MESSAGE_BYTES_MAX, Message, Violation};

mod members;

/// Bytes before the only segment: the number of segments less one, and the segment's length in words.
const HEADER_BYTES: usize = 8;
/// Depth of nested structs and lists: the message, its member, the list of options; one to spare.
const NESTING_MAX: i32 = 4;

/// Why bytes are not a message. The sender broke the protocol, unless [`is_skippable`](DecodeError::is_skippable).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the header, or than the header promises.
    #[error("a message of {needed} bytes ends after {got}")]
    Truncated {
        /// Bytes the message has by its header.
        needed: usize,
        /// Bytes there are.
        got: usize,
    },
    /// More bytes than the header promises.
    #[error("a message of {needed} bytes is followed by {} more", got - needed)]
    Trailing {
        /// Bytes the message has by its header.
        needed: usize,
        /// Bytes there are.
        got: usize,
    },
    /// More than any channel carries.
    #[error("a message of {bytes} bytes, at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Bytes there are.
        bytes: usize,
    },
    /// More than one segment.
    #[error("a message of more than one segment (the header says {} more)", more)]
    Segments {
        /// The number of segments less one, as the header says it.
        more: u32,
    },
    /// Not Cap'n Proto, or beyond what a message of its length may make its reader do.
    #[error("not a well-formed message: {0}")]
    Malformed(capnp::ErrorKind),
    /// A message of a newer version: the number of its union member.
    #[error("message number {0} is unknown to this version")]
    Unknown(u16),
    /// A Notice of a newer version: its number.
    #[error("notice number {0} is unknown to this version")]
    UnknownNotice(u16),
    /// A Shutdown of a newer version: the number of its `how`.
    #[error("a Shutdown whose `how` is {0}")]
    UnknownHow(u16),
    /// An Option of a newer version: the number of its action.
    #[error("an Option whose action is {0}")]
    UnknownOptionAction(u16),
    /// An address that is neither IPv4 nor IPv6.
    #[error("field `{field}` has address family {family}, only 4 and 6 exist")]
    AddressFamily {
        /// The field's name in the schema.
        field: &'static str,
        /// What it says.
        family: u8,
    },
    /// An IPv4 address with more than 32 bits, or a scope or flow.
    #[error("field `{field}` is an IPv4 address with parts that only IPv6 has")]
    AddressBits {
        /// The field's name in the schema.
        field: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("field `{field}` is not UTF-8 (first bad byte at {at})")]
    NotUtf8 {
        /// The field's name in the schema.
        field: &'static str,
        /// Where it stops being UTF-8.
        at: usize,
    },
    /// A well-formed message that breaks a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl DecodeError {
    /// Whether the receiver passes over this message and goes on: a newer peer may say things that an older one need not
    /// understand. Everything else ends the session or channel it came on.
    pub fn is_skippable(&self) -> bool {
        matches!(self, DecodeError::Unknown(_) | DecodeError::UnknownNotice(_))
    }
}

impl From<capnp::Error> for DecodeError {
    fn from(error: capnp::Error) -> Self {
        DecodeError::Malformed(error.kind)
    }
}

/// Reads one message, which borrows from `bytes`.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, DecodeError> {
    let segment = only_segment(bytes)?;
    let options = ReaderOptions {
        traversal_limit_in_words: Some(segment.len() / 8),
        nesting_limit: NESTING_MAX,
    };
    let segments = [segment];
    let reader = Reader::new(SegmentArray::new(&segments), options);
    members::message(reader.get_root()?, segment)
}

/// The segment after the header.
fn only_segment(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let got = bytes.len();
    if got > MESSAGE_BYTES_MAX {
        return Err(DecodeError::TooLarge { bytes: got });
    }
    let Some((header, segment)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::Truncated { needed: HEADER_BYTES, got });
    };
    let header = u64::from_le_bytes(*header);
    let (more, words) = (header as u32, (header >> 32) as usize);
    if more != 0 {
        return Err(DecodeError::Segments { more });
    }
    let needed = HEADER_BYTES + words * 8;
    match got {
        _ if got < needed => Err(DecodeError::Truncated { needed, got }),
        _ if got > needed => Err(DecodeError::Trailing { needed, got }),
        _ => Ok(segment),
    }
}

#[cfg(test)]
mod tests;
