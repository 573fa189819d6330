//! How much memory the buffers of all connections take together, and what happens at the bound.
//!
//! Beyond it nobody new is let in: a SYN is not answered, so that the client comes again. Of those that are there each keeps
//! a little ([`FLOOR_BYTES`]) for each direction, and gets no more: what its holder offers waits there, and a segment that
//! would need more is dropped, as Linux does under pressure; the client sends it again. The window that was promised stays.
//! Messages that left by lanes count as if they were buffered.

use std::ops::RangeInclusive;

use smoltcp::socket::tcp::Socket;
use smoltcp::wire::TcpRepr;

use super::connection::{Buffers, Connection};
use super::guard::distance;

/// How many bytes buffers take, at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferBytes {
    /// All together, but for a little that each has in any case.
    pub total_max: usize,
    /// What one connection may have received that its program has not read, unless the program asks for another number (SO_RCVBUF).
    pub receive: usize,
    /// What one connection may have that its client has not acknowledged (SO_SNDBUF).
    pub send: usize,
}

impl BufferBytes {
    /// Bounds of `receive` and `send`, and of what a program asks for.
    pub const EACH: RangeInclusive<usize> = 2 * 1024..=1 << 20;
    /// Bounds of `total_max`.
    pub const TOTAL: RangeInclusive<usize> = 64 * 1024..=1 << 40;

    pub(super) fn each(&self) -> Buffers {
        Buffers { receive_bytes: self.receive, send_bytes: self.send }
    }
}

impl Default for BufferBytes {
    /// The receive buffer is the largest that needs no window scaling.
    fn default() -> BufferBytes {
        BufferBytes { total_max: 256 << 20, receive: 65_535, send: 64 * 1024 }
    }
}

/// What a buffer may take in any case.
const FLOOR_BYTES: usize = 2048;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    /// That all buffers have.
    pub(super) bytes: usize,
    /// That messages would take which left on connections that have not buffered them yet.
    pub(super) message_bytes: usize,
    /// Connections that were not begun.
    pub(super) refused: u64,
    /// Segments that were dropped.
    pub(super) dropped: u64,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Budget {
        Budget { bytes_max, bytes: 0, message_bytes: 0, refused: 0, dropped: 0 }
    }

    /// Sets another bound. What is taken stays taken.
    pub(super) fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes + self.message_bytes >= self.bytes_max
    }

    /// Notes what a connection's buffers have now.
    pub(super) fn count(&mut self, connection: &mut Connection) {
        let (receive, send) = connection.socket.buffer_storage();
        self.bytes = self.bytes + receive + send - connection.counted_bytes;
        connection.counted_bytes = receive + send;
    }

    /// A connection is gone.
    pub(super) fn give_back(&mut self, connection: &Connection) {
        self.bytes -= connection.counted_bytes;
    }

    /// Whether there is room for another connection.
    pub(super) fn takes_another(&mut self) -> bool {
        let takes = !self.is_exhausted();
        self.refused += u64::from(!takes);
        takes
    }

    /// Whether a connection may receive a segment. A buffer has memory for what has yet to come before it, too.
    pub(super) fn takes(&mut self, segment: &TcpRepr<'_>, socket: &Socket<'_>) -> bool {
        if segment.payload.is_empty() || !self.is_exhausted() {
            return true;
        }
        let begins = i64::from(distance(socket.receive_next(), segment.seq_number));
        let ends = usize::try_from(begins + segment.payload.len() as i64).unwrap_or(0);
        let room = socket.buffer_storage().0.max(FLOOR_BYTES);
        let takes = socket.recv_queue() + ends <= room;
        self.dropped += u64::from(!takes);
        takes
    }

    /// How many of so many bytes a connection may take to send.
    pub(super) fn sends(&self, bytes: usize, socket: &Socket<'_>) -> usize {
        if !self.is_exhausted() {
            return bytes;
        }
        let room = socket.buffer_storage().1.max(FLOOR_BYTES);
        bytes.min(room.saturating_sub(socket.send_queue()))
    }
}
