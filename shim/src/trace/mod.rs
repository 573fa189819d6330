//! `MQTTSHIM_TRACE`: every call that passes our hooks, in the format of `strace -f -tt -T`, and who answered it.
//!
//! ```text
//! hook ──► call: begin ──► the hook's own work ──► end
//!                  │                                │
//!                  └─► lines (arg, text …) ◄────────┘──► output: one write(2) a line
//! ```
//!
//! Off, it costs a hook one load. On, it allocates nothing: the line grows in a buffer that belongs to the process, under a
//! lock that fork respects. Signals wait meanwhile, so that no handler of the thread finds the lock in its own way. Memory of
//! the program is read by a system call that answers for bad addresses instead of faulting. What cannot be written is
//! counted, and the program never knows.
//!
//! **Bounds.** 16 KiB a line. Not shown: calls of the library itself, calls of a signal handler that interrupts it, calls
//! that libc makes inside (stdio, the resolver), and programs' own system calls.

mod address;
mod answer;
mod arg;
mod call;
#[allow(unsafe_code, reason = "asks libc for the time zone")]
mod clock;
mod commands;
mod errnos;
mod line;
mod lines;
#[allow(unsafe_code, reason = "reads the program's memory through the kernel")]
mod memory;
mod message;
pub(crate) mod names;
mod options;
mod output;
mod setting;
#[allow(unsafe_code, reason = "signal masks, by system call")]
mod signals;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod waiting;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

pub(crate) use answer::Reason;
pub(crate) use arg::Arg;
pub(crate) use call::Call;
pub(crate) use waiting::MASK_BYTES;

use answer::Note;
use arg::{Before, Result};
use lines::{Ended, Lines};
use output::Output;
use setting::Setting;
use signals::Mask;

use crate::environment;
use crate::errno;
use crate::guard;
use crate::lock::ForkLock;
use crate::log::say;
use crate::table::{self, Entry, Kind};

const OFF: u8 = 0;
const LINES: u8 = 1;
const SUMMARY: u8 = 2;

/// How long another thread's line is waited for, before this one is lost.
const PATIENCE: Duration = Duration::from_secs(2);

thread_local! {
    /// What a thread that forks puts back afterwards. Const and without a destructor, as all of ours.
    static MASK: Cell<Option<Mask>> = const { Cell::new(None) };
}

static MODE: AtomicU8 = AtomicU8::new(OFF);
static STATE: ForkLock<Lines> = ForkLock::new(Lines::new());

/// Whether calls are traced.
#[inline]
pub(crate) fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != OFF
}

/// Does what `MQTTSHIM_TRACE` says. Called once, by the constructor.
pub(crate) fn start() {
    let Some(value) = environment::trace() else { return };
    let Some(setting) = Setting::parse(value) else { return };
    match Output::open(setting.target) {
        Ok(output) => {
            clock::prepare();
            STATE.lock().output = output;
            let mode = if setting.is_summary { SUMMARY } else { LINES };
            MODE.store(mode, Ordering::Relaxed);
        }
        Err(errno) => {
            let value = value.to_string_lossy();
            say!(
                Warn,
                "MQTTSHIM_TRACE={value}: {errno}; this program runs untraced: name a file it may write, or 1"
            );
        }
    }
}

/// The end of the process: the table, or the end of a line that was begun.
pub(crate) fn finish() {
    match MODE.load(Ordering::Relaxed) {
        LINES => with_lines(Lines::leave_unfinished).unwrap_or_default(),
        SUMMARY => with_lines(|lines| {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            lines.write_text(|line| summary::write(line, pid));
        })
        .unwrap_or_default(),
        _ => {}
    }
}

/// Before a fork. Signals wait until after it: a handler's calls would wait for the lock that its own thread has.
pub(crate) fn acquire_for_fork() {
    if is_on() {
        MASK.set(Some(signals::block()));
        STATE.acquire();
    }
}

/// After a fork, in the parent.
pub(crate) fn release_in_parent() {
    release(Lines::begin_many);
}

/// After a fork, in the child.
pub(crate) fn release_in_child() {
    summary::reset();
    release(Lines::begin_child);
}

fn release(note: fn(&mut Lines)) {
    if let Some(mask) = MASK.take() {
        STATE.release();
        with_lines(note);
        signals::restore(mask);
    }
}

/// In the call in progress, the kernel is asked. Without this, or one of the next, shared memory or the card has answered.
#[inline]
pub(crate) fn asked_kernel() {
    if is_on() {
        note_kernel();
    }
}

#[cold]
#[inline(never)]
fn note_kernel() {
    // What the library itself asks is not the program's.
    if !guard::inside() {
        answer::note(|note| note.is_kernel = true);
    }
}

/// In the call in progress, the kernel was asked only to wait.
#[inline]
pub(crate) fn waited() {
    if is_on() {
        answer::note(|note| note.is_kernel = false);
    }
}

/// In the call in progress, the library itself refuses.
#[inline]
pub(crate) fn refused() {
    if is_on() {
        answer::note(|note| note.is_refused = true);
    }
}

/// In the call in progress, shared memory answers, whatever else is asked.
#[inline]
pub(crate) fn is_ring() {
    if is_on() {
        answer::note(|note| note.is_ring = true);
    }
}

/// In the call in progress, the kernel is to be asked for this reason.
pub(crate) fn because(reason: Reason) {
    if is_on() {
        answer::note(|note| note.reason = Some(reason));
    }
}

/// A call in progress.
struct Begun {
    number: u64,
    before: Before,
    entry: Option<Entry>,
    /// Of the call that a signal handler's call interrupts.
    outer: Note,
    asked: (u64, Duration),
    started: Instant,
}

/// Does `run`, which is the call, between the two halves of its line. `number` is what the call returned, as a number.
///
/// A thread may be cancelled in `run`: nothing here has a destructor then.
#[cold]
#[inline(never)]
pub(crate) fn call<R: Copy>(
    call: Call,
    args: &[Arg],
    run: impl FnOnce() -> R,
    number: fn(R) -> i64,
) -> R {
    if guard::inside() {
        return run();
    }
    let begun = begin(call, args);
    let value = run();
    end(call, args, &begun, number(value));
    value
}

fn begin(call: Call, args: &[Arg]) -> Begun {
    let known = match MODE.load(Ordering::Relaxed) {
        LINES => with_lines(|lines| lines.begin(call, args)),
        _ => None,
    };
    let (number, before) = known.unwrap_or_default();
    Begun {
        number,
        before,
        entry: entry(args),
        outer: answer::replace(Note::default()),
        asked: mqttshim_session::requests_of_thread(),
        started: Instant::now(),
    }
}

fn end(call: Call, args: &[Arg], begun: &Begun, value: i64) {
    let elapsed = begun.started.elapsed();
    let note = answer::replace(begun.outer);
    let result = Result { value, errno: errno::get(), elapsed };
    if MODE.load(Ordering::Relaxed) == SUMMARY {
        return summary::count(call, result.is_failed(), elapsed);
    }
    let (count, time) = mqttshim_session::requests_of_thread();
    let asked = (count > begun.asked.0).then(|| time.saturating_sub(begun.asked.1));
    let (before, number, entry) = (&begun.before, begun.number, begun.entry);
    let ended = Ended { call, args, before, number, result, note, asked, entry };
    with_lines(|lines| lines.end(&ended));
}

/// What the descriptors of a call are to us: the first that is ours, or else the first. An epoll set says less than what it is
/// told to watch.
fn entry(args: &[Arg]) -> Option<Entry> {
    let entries = || {
        args.iter().filter_map(|arg| match *arg {
            Arg::Fd(fd) => Some(table::get(fd)),
            _ => None,
        })
    };
    let is_telling = |entry: &Entry| !entry.is_plain() && entry.kind() != Kind::Epoll;
    let ours = entries().find(is_telling).or_else(|| entries().find(|entry| !entry.is_plain()));
    ours.or_else(|| entries().next())
}

/// `None` if another thread holds the lines for too long, or a fault of ours ended the work. `errno` is as before.
fn with_lines<T>(work: impl FnOnce(&mut Lines) -> T) -> Option<T> {
    let mask = signals::block();
    let outcome = guard::fenced(|| STATE.lock_for(PATIENCE).map(|mut lines| work(&mut lines)));
    signals::restore(mask);
    outcome.flatten()
}
