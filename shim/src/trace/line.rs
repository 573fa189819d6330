//! One line of the trace while it grows: a fixed buffer that cuts what does not fit.
//!
//! Its beginning may use all but [`TAIL_BYTES`]; what follows the arguments (result, time, who answered) always has room.

use std::fmt::{self, Write};

/// Longest line, newline included.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;
/// Kept for what follows the arguments.
const TAIL_BYTES: usize = 1024;
/// What stands for the part that did not fit.
const CUT: &[u8] = b"...";

/// See the module.
pub(super) struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    length: usize,
    room: usize,
}

impl Line {
    pub(super) const fn new() -> Line {
        Line { bytes: [0; LINE_BYTES_MAX], length: 0, room: LINE_BYTES_MAX - TAIL_BYTES }
    }

    /// An empty line.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.room = LINE_BYTES_MAX - TAIL_BYTES;
    }

    /// From here on the tail may be used.
    pub(super) fn begin_tail(&mut self) {
        self.room = LINE_BYTES_MAX;
    }

    /// Adds `text`, or as much of it as fits.
    pub(super) fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    /// As [`push`](Self::push).
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        let room = self.room.saturating_sub(self.length + CUT.len());
        let taken = bytes.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        if taken < bytes.len() && self.length + CUT.len() <= self.room {
            self.bytes[self.length..self.length + CUT.len()].copy_from_slice(CUT);
            // Full: nothing is added before the tail begins.
            self.length += CUT.len();
            self.room = self.length;
        }
    }

    /// Adds spaces up to `column`, counted from 0.
    pub(super) fn pad_to(&mut self, column: usize) {
        while self.length < column {
            self.push_bytes(b" ");
        }
    }

    /// Takes back what was added after `length`.
    pub(super) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// Adds formatted text to a line.
macro_rules! put {
    ($line:expr, $($format:tt)*) => {{
        use std::fmt::Write as _;
        // A line never fails: it cuts.
        let _ = write!($line, $($format)*);
    }};
}
pub(super) use put;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_keeps_room_for_its_tail() {
        let mut line = Box::new(Line::new());
        line.push(&"x".repeat(2 * LINE_BYTES_MAX));
        line.push("lost");
        let length = line.as_bytes().len();
        assert_eq!(length, LINE_BYTES_MAX - TAIL_BYTES);
        assert!(line.as_bytes().ends_with(b"x..."));
        line.begin_tail();
        line.push(") = 0\n");
        assert!(line.as_bytes().ends_with(b"x...) = 0\n"));
    }

    #[test]
    fn a_result_begins_at_its_column() {
        let mut line = Box::new(Line::new());
        put!(line, "close({})", 3);
        line.pad_to(12);
        line.pad_to(3);
        line.push("= 0");
        assert_eq!(line.as_bytes(), b"close(3)    = 0");
    }
}
