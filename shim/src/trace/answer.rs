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
    is_ring: bool,
    is_shim: bool,
    reason: Option<Reason>,
}

thread_local! {
    // Const and without a destructor: usable in signal handlers and after thread-local storage is torn down.
    static NOTE: Cell<Note> = const { Cell::new(Note { is_ring: false, is_shim: false, reason: None }) };
}

/// A call begins.
pub(super) fn begin() {
    NOTE.set(Note::default());
}

/// What is known of the call that ends.
pub(super) fn take() -> Note {
    NOTE.take()
}

/// Memory shared with the agent answers.
#[cold]
pub(super) fn is_ring() {
    NOTE.set(Note { is_ring: true, ..NOTE.get() });
}

/// The library itself refuses.
#[cold]
pub(super) fn is_shim() {
    NOTE.set(Note { is_shim: true, ..NOTE.get() });
}

/// The kernel is to answer, for this reason.
#[cold]
pub(super) fn is_kernel(reason: Reason) {
    NOTE.set(Note { reason: Some(reason), ..NOTE.get() });
}

/// Writes the suffix. `asked` is how long the card was waited for, `None` if it was not; `entry` is what the call's
/// descriptor was before it, if it has one.
pub(super) fn suffix(line: &mut Line, note: Note, asked: Option<Duration>, entry: Option<Entry>) {
    if note.is_ring {
        match asked {
            Some(time) => put!(line, " {{rpc {}us}}", time.as_micros()),
            None => line.push(" {ring}"),
        }
    } else if note.is_shim {
        line.push(" {shim}");
    } else {
        match note.reason.map(Reason::text).or_else(|| entry.map(reason_of)) {
            Some(reason) => put!(line, " {{kernel: {reason}}}"),
            None => line.push(" {kernel}"),
        }
    }
}

fn reason_of(entry: Entry) -> &'static str {
    match entry.kind() {
        Kind::Plain | Kind::Epoll => "not offloaded",
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
        begin();
        assert_suffix(" {kernel}", take(), None, None);
        assert_suffix(" {kernel: not offloaded}", take(), None, Some(Entry::PLAIN));
        assert_suffix(" {kernel: not decided yet}", take(), None, Some(Entry::undecided()));
        is_ring();
        assert_suffix(" {ring}", take(), None, Some(Entry::PLAIN));
        is_shim();
        is_ring();
        assert_suffix(" {rpc 18us}", take(), Some(18), None);
        is_shim();
        assert_suffix(" {shim}", take(), None, None);
        is_kernel(Reason::Rules);
        assert_suffix(" {kernel: port not in rules}", take(), None, Some(Entry::undecided()));
    }
}
