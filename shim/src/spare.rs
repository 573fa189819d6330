//! Descriptors kept back for a process that has none left.
//!
//! An accepted connection takes two numbers for a moment: its placeholder's, and the wire's until it is handed over. The
//! kernel takes one. A broker that keeps one descriptor back, to accept and drop the clients it has no room for (mosquitto
//! does), would find that one too few and spin. So where one number is free, room is made for the second: by closing one that
//! was kept back, or, where the limit was lowered below those, by raising it for that moment.

use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use crate::descriptor;
use crate::table::{self, Entry, Kind};

const NONE: RawFd = -1;

static SPARE: AtomicI32 = AtomicI32::new(NONE);

/// Keeps a descriptor back, numbered from `floor` up if the process's limit allows, unless there is one. It is a copy of
/// `source`, which is as good as any.
pub(crate) fn keep(source: BorrowedFd<'_>, floor: RawFd) {
    if SPARE.load(Ordering::Relaxed) != NONE {
        return;
    }
    let copied = rustix::io::fcntl_dupfd_cloexec(source, floor)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(source, 0));
    let Ok(spare) = copied else { return };
    let spare = spare.into_raw_fd();
    table::replace(spare, Entry::of(Kind::Private));
    if SPARE.compare_exchange(NONE, spare, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        close(spare);
    }
}

fn close(spare: RawFd) {
    table::replace(spare, Entry::PLAIN);
    drop(descriptor::own(spare));
}

/// Makes `attempt` again with room for one descriptor more, if it failed though `source` could be copied.
pub(crate) fn with_room<T>(
    source: BorrowedFd<'_>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match attempt() {
        Err(Errno::MFILE) => {}
        outcome => return outcome,
    }
    // Without a free number the kernel would fail, too.
    drop(rustix::io::fcntl_dupfd_cloexec(source, 0)?);
    let spare = SPARE.swap(NONE, Ordering::AcqRel);
    if spare != NONE {
        close(spare);
        match attempt() {
            Err(Errno::MFILE) => {}
            outcome => return outcome,
        }
    }
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return Err(Errno::MFILE) };
    let raised = Rlimit { current: Some(current + 1), maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(|_| Errno::MFILE)?;
    let outcome = attempt();
    // It may be lowered below what is open.
    let lowered = rustix::process::setrlimit(Resource::Nofile, limit);
    debug_assert!(lowered.is_ok(), "the limit was so a moment ago");
    outcome
}
