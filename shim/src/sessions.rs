//! The process's sessions: the one in use, and those of dead agents that sockets still belong to.
//!
//! A session is opened at the first offload verdict, and again when the agent died. Sockets keep the number of theirs, so a
//! restarted card never mistakes an old socket for a new one. A dead session is freed at the opening of the next but one,
//! when no descriptor belongs to it; until then a thread may still be on its way out of a call.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use mqttshim_schema::Notice;
use mqttshim_session::{OpenError, Session};

use crate::environment;
use crate::epoll;
use crate::log::say;
use crate::spare;
use crate::state::State;
use crate::table::{self, Entry, Kind, Socket};

/// Sessions with descriptors at one time: as many as the table's entries can tell apart.
const SESSIONS_MAX: usize = 16;
/// Our own descriptors are numbered from here, out of the way of programs that count on small numbers or `select`.
const PRIVATE_FD_MIN: i32 = 900;
const NONE: u8 = u8::MAX;

static SESSIONS: [AtomicPtr<Session>; SESSIONS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SESSIONS_MAX];
/// Descriptors of this process that belong to each.
static DESCRIPTORS: [AtomicU32; SESSIONS_MAX] = [const { AtomicU32::new(0) }; SESSIONS_MAX];
static CURRENT: AtomicU8 = AtomicU8::new(NONE);
/// See [`share`].
static ARE_SHARED: AtomicBool = AtomicBool::new(false);

/// The session a socket belongs to.
#[inline]
pub(crate) fn of(socket: Socket) -> Option<&'static Session> {
    numbered(socket.session)
}

/// The session with this number.
pub(crate) fn numbered(number: u8) -> Option<&'static Session> {
    let pointer = SESSIONS.get(usize::from(number))?.load(Ordering::Acquire);
    // SAFETY: null or a session leaked by `open`. It is freed by `retire` alone, when no descriptor leads here.
    unsafe { pointer.as_ref() }
}

/// The session in use, if its agent lives.
pub(crate) fn current() -> Option<(u8, &'static Session)> {
    let number = CURRENT.load(Ordering::Acquire);
    numbered(number).filter(|session| session.is_alive()).map(|session| (number, session))
}

/// One descriptor more, or fewer, belongs to the socket's session.
pub(crate) fn count(entry: Entry, is_added: bool) {
    let Some(socket) = entry.socket() else { return };
    let counter = &DESCRIPTORS[usize::from(socket.session)];
    if is_added {
        counter.fetch_add(1, Ordering::AcqRel);
    } else {
        counter.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any descriptor belongs to the card.
pub(crate) fn has_descriptors() -> bool {
    DESCRIPTORS.iter().any(|counter| counter.load(Ordering::Relaxed) > 0)
}

/// Before a fork while descriptors belong to the card: from now on others may hold the same ones.
pub(crate) fn share() {
    ARE_SHARED.store(true, Ordering::Relaxed);
}

/// Whether another process may hold the same listeners, and meet this one in the sessions that serve them.
pub(crate) fn are_shared() -> bool {
    ARE_SHARED.load(Ordering::Relaxed)
}

/// The session in use, opened if need be. The error is a sentence for the operator.
pub(crate) fn ensure(state: &mut State, program: &str) -> Result<(u8, &'static Session), String> {
    current().map_or_else(|| open_another(state, program, None), Ok)
}

/// One more session, in use from now on; with a `placeholder` the one that serves its listener, if there is one.
pub(crate) fn open_another(
    state: &mut State,
    program: &str,
    placeholder: Option<BorrowedFd<'_>>,
) -> Result<(u8, &'static Session), String> {
    if !state.is_prepared {
        state.is_prepared = true;
        environment::warn_of_mistakes();
        std::panic::set_hook(Box::new(report_panic));
    }
    retire();
    let number = (0..SESSIONS_MAX)
        .find(|&number| SESSIONS[number].load(Ordering::Acquire).is_null())
        .ok_or("sockets of too many dead sessions are still open")?;
    let (session, path) = open(program, placeholder)?;
    say!(Info, "session open at {}", path.display());
    for fd in session.private_fds() {
        table::replace(fd, Entry::of(Kind::Private));
    }
    tell_what_is_outside(&session, state);
    spare::keep(session.control(), PRIVATE_FD_MIN);
    SESSIONS[number].store(Box::into_raw(Box::new(session)), Ordering::Release);
    let number = u8::try_from(number).expect("there are fewer than 256 sessions");
    CURRENT.store(number, Ordering::Release);
    match placeholder {
        None => epoll::session_opened(),
        Some(_) => epoll::session_joined(),
    }
    let session = numbered(number).expect("stored above");
    Ok((number, session))
}

/// Keeps a descriptor back again, once one was used up.
pub(crate) fn keep_spare() {
    if let Some(session) = numbered(CURRENT.load(Ordering::Acquire)) {
        spare::keep(session.control(), PRIVATE_FD_MIN);
    }
}

/// Tries the session paths in order. Reports the first that is there and refuses, or else the first of all.
fn open(program: &str, placeholder: Option<BorrowedFd<'_>>) -> Result<(Session, PathBuf), String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut refusal: Option<OpenError> = None;
    let mut absence: Option<OpenError> = None;
    let paths = environment::session_paths();
    for path in &paths {
        let opened = match placeholder {
            Some(placeholder) => Session::join(path, name, PRIVATE_FD_MIN, placeholder),
            None => Session::open(path, name, PRIVATE_FD_MIN),
        };
        match opened {
            Ok(session) => return Ok((session, path.clone())),
            Err(error) if error.is_absent() => absence = absence.or(Some(error)),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(match (refusal, absence) {
        (Some(error), _) => error.to_string(),
        (None, Some(error)) if paths.len() > 1 => {
            let others: Vec<String> =
                paths[1..].iter().map(|path| path.display().to_string()).collect();
            format!("{error} (also tried {})", others.join(", "))
        }
        (None, error) => error.map_or_else(String::new, |error| error.to_string()),
    })
}

fn tell_what_is_outside(session: &Session, state: &State) {
    for _ in 0..state.outside.listeners {
        session.notice(Notice::ListenerOutside, "before the session");
    }
    for _ in 0..state.outside.connections {
        session.notice(Notice::ConnectionOutside, "before the session");
    }
}

/// Frees dead sessions without descriptors, but for the latest.
fn retire() {
    let latest = CURRENT.load(Ordering::Acquire);
    for (number, (slot, descriptors)) in SESSIONS.iter().zip(&DESCRIPTORS).enumerate() {
        if number == usize::from(latest) || descriptors.load(Ordering::Acquire) > 0 {
            continue;
        }
        let pointer = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if pointer.is_null() {
            continue;
        }
        // SAFETY: `ensure` leaked it from a Box, and the swap above took the only pointer to it. No descriptor belongs to
        // it, and a later session has been in use since, so no call that began on one of its descriptors still runs.
        let session = unsafe { Box::from_raw(pointer) };
        for fd in session.private_fds() {
            table::replace(fd, Entry::PLAIN);
        }
        drop(session);
    }
}

fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    match info.location() {
        Some(place) => {
            say!(Error, "internal fault at {}:{}; the call fails", place.file(), place.line());
        }
        None => say!(Error, "internal fault; the call fails"),
    }
}
