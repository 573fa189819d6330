//! Who answered a call: the suffix of its line.
//!
//! ```text
//! {ring}                       from memory shared with the agent; the card was not asked
//! {rpc 18us}                   the card was asked, and took so long
//! {shim}                       refused by the library itself, before anybody was asked
//! {kernel: port not in rules}  the kernel, and why
//! ```

use std::cell::Cell;
use std::time::Duration;

use super::line::{Line, put};
use crate::table::{Entry, Kind};

/// Why a call was the kernel's, where its descriptor does not say it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reason {
    /// The rules leave the address to the kernel.
    Rules,
    /// There is no card.
    NoCard,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Reason::Rules => "port not in rules",
            Reason::NoCard => "no card",
        }
    }
}

/// What has become known of the call in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Note {
    /// Shared memory answered, whoever else was asked too.
    pub(super) is_ring: bool,
    /// The kernel was asked.
    pub(super) is_kernel: bool,
    /// The library refused.
    pub(super) is_refused: bool,
    /// Why it is the kernel's.
    pub(super) reason: Option<Reason>,
}

thread_local! {
    // Const and without a destructor: usable in signal handlers and after thread-local storage is torn down.
    static NOTE: Cell<Note> = const {
        Cell::new(Note { is_ring: false, is_kernel: false, is_refused: false, reason: None })
    };
}

/// Notes something of the call in progress.
#[cold]
#[inline(never)]
pub(super) fn note(change: impl FnOnce(&mut Note)) {
    let mut note = NOTE.get();
    change(&mut note);
    NOTE.set(note);
}

/// Begins with what is known of another call; returns what was known of the one before.
pub(super) fn replace(note: Note) -> Note {
    NOTE.replace(note)
}

/// Writes the suffix. `asked` is how long the card was waited for, `None` if it was not; `entry` is what the call's
/// descriptor was before it, if it has one.
pub(super) fn suffix(line: &mut Line, note: Note, asked: Option<Duration>, entry: Option<Entry>) {
    if note.is_kernel && !note.is_ring {
        match note.reason.map(Reason::text).or_else(|| entry.map(reason_of)) {
            Some(reason) => put!(line, " {{kernel: {reason}}}"),
            None => line.push(" {kernel}"),
        }
    } else if note.is_refused && !note.is_ring {
        line.push(" {shim}");
    } else {
        match asked {
            Some(time) => put!(line, " {{rpc {}us}}", time.as_micros()),
            None => line.push(" {ring}"),
        }
    }
}

fn reason_of(entry: Entry) -> &'static str {
    match entry.kind() {
        Kind::Plain => "not offloaded",
        Kind::Epoll => "epoll",
        Kind::Undecided => "not decided yet",
        Kind::Bound => "not listening yet",
        Kind::Listener | Kind::Connection => "placeholder",
        Kind::Refused => "no card",
        Kind::KernelListener => "listener of the kernel",
        Kind::KernelConnection => "connection of the kernel",
        Kind::Private => "descriptor of the library",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_suffix(expected: &str, note: Note, asked: Option<u64>, entry: Option<Entry>) {
        let mut line = Box::new(Line::new());
        suffix(&mut line, note, asked.map(Duration::from_micros), entry);
        assert_eq!(String::from_utf8_lossy(line.as_bytes()), expected);
    }

    #[test]
    fn the_suffix_says_who_answered_and_why() {
        let none = Note::default();
        let kernel = Note { is_kernel: true, ..none };
        assert_suffix(" {kernel}", kernel, None, None);
        assert_suffix(" {kernel: not offloaded}", kernel, None, Some(Entry::PLAIN));
        assert_suffix(" {kernel: not decided yet}", kernel, Some(18), Some(Entry::undecided()));
        let because = Note { reason: Some(Reason::Rules), ..kernel };
        assert_suffix(" {kernel: port not in rules}", because, None, Some(Entry::undecided()));
        assert_suffix(" {ring}", none, None, Some(Entry::PLAIN));
        assert_suffix(" {ring}", Note { is_ring: true, ..kernel }, None, Some(Entry::PLAIN));
        assert_suffix(" {rpc 18us}", none, Some(18), None);
        assert_suffix(" {shim}", Note { is_refused: true, ..none }, None, None);
    }
}
