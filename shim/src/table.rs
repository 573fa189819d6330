//! What each descriptor of the program is to us.
//!
//! One word a descriptor, in zeroed memory that costs nothing until touched; a look is one atomic load, and no lock is ever
//! taken. Descriptors beyond [`DESCRIPTORS_MAX`] are the kernel's own. A second word remembers the placeholder's inode:
//! descriptors can be closed behind our back (`fclose`, `closefrom`, raw system calls), and a number that names another file
//! by now is found out on slow paths.
//!
//! ```text
//! bit 0      4       8         12                 32                               64
//!     │ kind │ flags │ session │ slot index       │ slot generation, or family     │
//! ```

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use mqttshim_session::SlotId;

use crate::descriptor;

/// Descriptors we keep track of.
pub(crate) const DESCRIPTORS_MAX: usize = 1 << 20;
/// Bits of a slot index in an entry: as many sockets as a session can have.
const INDEX_BITS: u32 = 20;
const _: () = assert!(mqttshim_session::SOCKETS_MAX <= 1 << INDEX_BITS);

static ENTRIES: [AtomicU64; DESCRIPTORS_MAX] = [const { AtomicU64::new(0) }; DESCRIPTORS_MAX];
static INODES: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// No descriptor above this one ever had an entry.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// What a descriptor is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing of ours.
    Plain = 0,
    /// A TCP socket of the kernel whose verdict has not fallen.
    Undecided = 1,
    /// Bound on the card; the descriptor is still the kernel's unbound socket.
    Bound = 2,
    /// Listens on the card; the descriptor is its placeholder.
    Listener = 3,
    /// A connection on the card; the descriptor is its placeholder.
    Connection = 4,
    /// A bound socket that must not listen, because there is no card and the kernel was ruled out.
    Refused = 5,
    /// A listener of the kernel; the card has been told.
    KernelListener = 6,
    /// A connection of the kernel; the card has been told.
    KernelConnection = 7,
    /// A descriptor of ours.
    Private = 8,
    /// An epoll set this process made.
    Epoll = 9,
}

impl Kind {
    fn from_bits(bits: u64) -> Kind {
        match bits & 0xf {
            1 => Kind::Undecided,
            2 => Kind::Bound,
            3 => Kind::Listener,
            4 => Kind::Connection,
            5 => Kind::Refused,
            6 => Kind::KernelListener,
            7 => Kind::KernelConnection,
            8 => Kind::Private,
            9 => Kind::Epoll,
            _ => Kind::Plain,
        }
    }
}

/// A property of a descriptor beside its kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Flag {
    /// The socket is AF_INET6.
    V6 = 1,
    /// Another descriptor may name the same open file. An epoll set: it is waited for where we cannot see it.
    Shared = 2,
    /// Undecided: an epoll set holds it that could not be remembered, so it must stay. Connection: `connect` has yet to
    /// report success.
    Pending = 4,
}

/// What a descriptor keeps when its socket becomes something else.
const LASTING: [Flag; 2] = [Flag::V6, Flag::Shared];

/// The families given out: which undecided descriptors are copies of one another.
static FAMILIES: AtomicU32 = AtomicU32::new(0);

/// A socket of a session: which session, and which slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Socket {
    /// As counted by [`crate::sessions`].
    pub(crate) session: u8,
    pub(crate) slot: SlotId,
}

/// A descriptor's entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const PLAIN: Entry = Entry(0);

    /// An entry without a socket.
    pub(crate) fn of(kind: Kind) -> Entry {
        Entry(kind as u64)
    }

    /// An undecided socket of a new open file; descriptors of one file have the same.
    pub(crate) fn undecided() -> Entry {
        let family = FAMILIES.fetch_add(1, Ordering::Relaxed);
        Entry(Kind::Undecided as u64 | u64::from(family) << 32)
    }

    /// `None` when the slot's index does not fit, which no agent's does.
    pub(crate) fn offloaded(kind: Kind, socket: Socket) -> Option<Entry> {
        let index = socket.slot.index;
        (index < 1 << INDEX_BITS && socket.session < 16).then(|| {
            Entry(
                kind as u64
                    | u64::from(socket.session) << 8
                    | u64::from(index) << 12
                    | u64::from(socket.slot.generation) << 32,
            )
        })
    }

    pub(crate) fn with(self, flag: Flag) -> Entry {
        Entry(self.0 | (flag as u64) << 4)
    }

    pub(crate) fn without(self, flag: Flag) -> Entry {
        Entry(self.0 & !((flag as u64) << 4))
    }

    /// The same, with the flag if `condition`.
    pub(crate) fn with_if(self, flag: Flag, condition: bool) -> Entry {
        if condition { self.with(flag) } else { self }
    }

    /// The same, with what `old` keeps.
    pub(crate) fn with_lasting(self, old: Entry) -> Entry {
        LASTING.into_iter().fold(self, |entry, flag| entry.with_if(flag, old.has(flag)))
    }

    pub(crate) fn has(self, flag: Flag) -> bool {
        self.0 & (flag as u64) << 4 != 0
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::from_bits(self.0)
    }

    pub(crate) fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Whether the descriptor is a placeholder, so that the kernel must not be asked in its stead.
    pub(crate) fn is_placeholder(self) -> bool {
        matches!(self.kind(), Kind::Listener | Kind::Connection)
    }

    /// Whether it is a socket that is the card's, or may become so.
    pub(crate) fn may_be_the_cards(self) -> bool {
        matches!(self.kind(), Kind::Undecided | Kind::Bound | Kind::Listener | Kind::Connection)
    }

    /// The socket on the card, for a bound socket, a listener or a connection.
    pub(crate) fn socket(self) -> Option<Socket> {
        matches!(self.kind(), Kind::Bound | Kind::Listener | Kind::Connection).then(|| Socket {
            session: (self.0 >> 8 & 0xf) as u8,
            slot: SlotId {
                index: (self.0 >> 12) as u32 & ((1 << INDEX_BITS) - 1),
                generation: (self.0 >> 32) as u32,
            },
        })
    }

    /// Whether two descriptors with these entries name the same socket.
    pub(crate) fn is_same_socket(self, other: Entry) -> bool {
        let identity = |entry: Entry| entry.0 & !0xf0;
        self.kind() != Kind::Plain && identity(self) == identity(other)
    }
}

/// The entry of `fd`.
#[inline]
pub(crate) fn get(fd: RawFd) -> Entry {
    usize::try_from(fd)
        .ok()
        .and_then(|at| ENTRIES.get(at))
        .map_or(Entry::PLAIN, |word| Entry(word.load(Ordering::Acquire)))
}

/// Whether `fd` is small enough to have an entry.
pub(crate) fn has_room_for(fd: RawFd) -> bool {
    usize::try_from(fd).is_ok_and(|at| at < DESCRIPTORS_MAX)
}

/// Puts `entry` in, returns the one before. Nothing happens beyond the table.
pub(crate) fn replace(fd: RawFd, entry: Entry) -> Entry {
    let Some(word) = usize::try_from(fd).ok().and_then(|at| ENTRIES.get(at)) else {
        return Entry::PLAIN;
    };
    if entry.is_plain() && word.load(Ordering::Relaxed) == 0 {
        // Do not touch pages of the table that were never used.
        return Entry::PLAIN;
    }
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    Entry(word.swap(entry.0, Ordering::AcqRel))
}

/// Puts `new` in where `old` still is.
pub(crate) fn exchange(fd: RawFd, old: Entry, new: Entry) -> bool {
    usize::try_from(fd).ok().and_then(|at| ENTRIES.get(at)).is_some_and(|word| {
        word.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Remembers which file the placeholder at `fd` is. Returns its inode.
pub(crate) fn remember_file(fd: RawFd) -> u32 {
    let inode = descriptor::inode(fd);
    if let Some(word) = usize::try_from(fd).ok().and_then(|at| INODES.get(at)) {
        word.store(inode, Ordering::Release);
    }
    inode
}

/// Whether `fd` is still the file it was when it was remembered.
pub(crate) fn is_same_file(fd: RawFd) -> bool {
    usize::try_from(fd)
        .ok()
        .and_then(|at| INODES.get(at))
        .is_some_and(|word| word.load(Ordering::Acquire) == descriptor::inode(fd))
}

/// Every descriptor from `first` to `last` that has an entry.
pub(crate) fn entries(first: RawFd, last: RawFd) -> impl Iterator<Item = (RawFd, Entry)> {
    let last = last.min(HIGHEST.load(Ordering::Relaxed));
    (first.max(0)..=last).map(|fd| (fd, get(fd))).filter(|(_, entry)| !entry.is_plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: Socket =
        Socket { session: 15, slot: SlotId { index: (1 << 20) - 1, generation: u32::MAX } };

    #[test]
    fn an_entry_keeps_kind_flags_and_socket_apart() {
        let entry = Entry::offloaded(Kind::Connection, SOCKET).unwrap();
        assert_eq!((entry.kind(), entry.socket()), (Kind::Connection, Some(SOCKET)));
        for flag in [Flag::V6, Flag::Shared, Flag::Pending] {
            let flagged = entry.with(flag);
            assert!(flagged.has(flag) && !entry.has(flag));
            assert_eq!((flagged.kind(), flagged.socket()), (Kind::Connection, Some(SOCKET)));
            assert!(flagged.is_same_socket(entry));
            assert!(flagged.without(flag) == entry);
        }
    }

    #[test]
    fn a_slot_beyond_the_table_is_refused() {
        let slot = SlotId { index: 1 << 20, generation: 0 };
        assert!(Entry::offloaded(Kind::Bound, Socket { session: 0, slot }).is_none());
        assert!(Entry::offloaded(Kind::Bound, Socket { session: 16, ..SOCKET }).is_none());
    }

    #[test]
    fn descriptors_beyond_the_table_are_the_kernels() {
        for fd in [-1, DESCRIPTORS_MAX as i32, i32::MAX] {
            assert!(replace(fd, Entry::of(Kind::Private)).is_plain());
            assert!(get(fd).is_plain());
            assert!(!has_room_for(fd));
        }
        assert!(has_room_for(DESCRIPTORS_MAX as i32 - 1));
    }

    #[test]
    fn families_of_undecided_sockets_do_not_mix() {
        let first = Entry::undecided();
        assert!(first.is_same_socket(first.with(Flag::V6)));
        assert!(!first.is_same_socket(Entry::undecided()));
        assert!(!Entry::PLAIN.is_same_socket(Entry::PLAIN));
    }

    #[test]
    fn only_an_unchanged_entry_is_exchanged() {
        let fd = DESCRIPTORS_MAX as i32 - 2;
        let first = Entry::undecided();
        replace(fd, first);
        assert!(!exchange(fd, Entry::undecided(), Entry::PLAIN));
        assert!(exchange(fd, first, Entry::of(Kind::Refused)));
        assert_eq!(entries(fd, fd).map(|(fd, _)| fd).collect::<Vec<_>>(), [fd]);
        assert!(replace(fd, Entry::PLAIN) == Entry::of(Kind::Refused));
    }
}
