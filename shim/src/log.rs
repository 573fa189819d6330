//! One line a message, on the program's standard error: `mqttshim[pid]: warning: …`.
//!
//! A line is put together in a buffer on the stack and leaves in one `write(2)`, so lines of several threads never mix and
//! nothing is allocated. Nothing is written where descriptor 2 is an offloaded socket. Longer lines are cut.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::descriptor;
use crate::table;

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 640;

/// How much is said. `MQTTSHIM_LOG` names one of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Level {
    /// Something is broken.
    Error = 1,
    /// Something is not as the operator wanted.
    Warn = 2,
    /// What was offloaded, and to whom.
    Info = 3,
    /// Each verdict.
    Debug = 4,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

impl Level {
    /// The level called `name`.
    pub(crate) fn from_name(name: &str) -> Option<Level> {
        Some(match name {
            "error" => Level::Error,
            "warn" => Level::Warn,
            "info" => Level::Info,
            "debug" => Level::Debug,
            _ => return None,
        })
    }

    fn label(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// From now on says what is at least as grave as `level`.
pub(crate) fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes one line if its level is wanted. Use through [`say!`](crate::log::say).
#[cold]
#[inline(never)]
pub(crate) fn line(level: Level, message: fmt::Arguments<'_>) {
    if level as u8 > LEVEL.load(Ordering::Relaxed) || table::get(2).is_placeholder() {
        return;
    }
    let mut line = Line { bytes: [0; LINE_BYTES_MAX], length: 0 };
    let pid = rustix::process::getpid().as_raw_nonzero();
    // A line that is too long is cut, which is not an error here.
    let _ = write!(line, "mqttshim[{pid}]: {}: {message}", level.label());
    line.bytes[line.length] = b'\n';
    // Nobody to tell when standard error is closed.
    let _ = rustix::io::write(descriptor::borrow(2), &line.bytes[..=line.length]);
}

/// Text that stops growing one byte before its end, which is the line's newline.
struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX - 1 - self.length;
        let taken = text.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes one line: `say!(Warn, "port {port} …")`.
macro_rules! say {
    ($level:ident, $($message:tt)*) => {
        $crate::log::line($crate::log::Level::$level, format_args!($($message)*))
    };
}
pub(crate) use say;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut_and_keeps_room_for_its_newline() {
        let mut line = Line { bytes: [0; LINE_BYTES_MAX], length: 0 };
        assert!(write!(line, "{}", "x".repeat(LINE_BYTES_MAX - 1)).is_ok());
        assert!(write!(line, "y").is_err());
        assert_eq!(line.length, LINE_BYTES_MAX - 1);
    }

    #[test]
    fn levels_are_known_by_name_only() {
        assert_eq!(Level::from_name("debug"), Some(Level::Debug));
        assert_eq!(Level::from_name("trace"), None);
        assert!(Level::Error < Level::Debug);
    }
}
