//! Data, Credit and Blocked, written word by word.
//!
//! They travel for every read and write of the broker, and Cap'n Proto's builder would allocate twice and copy a stream's
//! bytes twice for each. Their layout is fixed, so writing it takes a few stores and one copy; a test compares every byte
//! with what the builder makes of the same message. Layout (capnproto.org/encoding.html):
//!
//! ```text
//! header │ root pointer │ Message: member number │ pointer to the member │ member's data words │ [list pointer │ bytes, padded]
//! ```
//!
//! Every pointer's target follows at once, so every offset but the list's is zero, and that one is zero as well.

use crate::{SocketId, Stamp};

/// Bytes of one Cap'n Proto word.
const WORD: usize = 8;
/// Words before a member's data: root pointer, member number, pointer to the member.
const PREFIX_WORDS: usize = 3;

/// Member numbers of the union in `mqttshim.capnp`.
const DATA: u64 = 6;
const CREDIT: u64 = 9;
const BLOCKED: u64 = 10;

/// The flat form's header: one segment of this many bytes.
pub(super) fn header(segment_bytes: usize, out: &mut Vec<u8>) {
    let words = u32::try_from(segment_bytes / WORD).expect("a message is far below 32 GiB");
    // The number of segments less one, then the length of the only one.
    put(u64::from(words) << 32, out);
}

pub(super) fn data(socket: SocketId, stamp: Stamp, read: Stamp, bytes: &[u8], out: &mut Vec<u8>) {
    let padded = bytes.len().next_multiple_of(WORD);
    let segment_bytes = (PREFIX_WORDS + 4) * WORD + padded;
    out.reserve(WORD + segment_bytes);
    header(segment_bytes, out);
    prefix(DATA, 3, 1, out);
    put(u64::from(socket.0), out);
    put(stamp, out);
    put(read, out);
    put(byte_list_pointer(bytes.len()), out);
    out.extend_from_slice(bytes);
    out.resize(WORD + segment_bytes, 0);
}

pub(super) fn credit(socket: SocketId, bytes: u32, out: &mut Vec<u8>) {
    header((PREFIX_WORDS + 1) * WORD, out);
    prefix(CREDIT, 1, 0, out);
    put(u64::from(socket.0) | u64::from(bytes) << 32, out);
}

pub(super) fn blocked(socket: SocketId, stamp: Stamp, out: &mut Vec<u8>) {
    header((PREFIX_WORDS + 2) * WORD, out);
    prefix(BLOCKED, 2, 0, out);
    put(u64::from(socket.0), out);
    put(stamp, out);
}

/// Root pointer, Message, and its pointer to a member of this many data and pointer words.
fn prefix(member: u64, data_words: u64, pointers: u64, out: &mut Vec<u8>) {
    put(struct_pointer(1, 1), out);
    put(member, out);
    put(struct_pointer(data_words, pointers), out);
}

/// A pointer to the struct that follows at once.
fn struct_pointer(data_words: u64, pointers: u64) -> u64 {
    data_words << 32 | pointers << 48
}

/// A pointer to the list of bytes (element size code 2) that follows at once.
fn byte_list_pointer(bytes: usize) -> u64 {
    1 | 2 << 32 | (bytes as u64) << 35
}

fn put(word: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_le_bytes());
}
