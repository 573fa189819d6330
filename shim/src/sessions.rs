//! The process's sessions: the one in use, and those of dead agents that sockets still belong to.
//!
//! A session is opened at the first offload verdict, and again when the agent died. Sockets keep the number of theirs, so a
//! restarted card never mistakes an old socket for a new one. Beside them are sessions of other programs, whose sockets came
//! through exec or SCM_RIGHTS. A session is freed at the coming of the next but one, when no descriptor belongs to it; until
//! then a thread may still be on its way out of a call.

use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use mqttshim_schema::Notice;
use mqttshim_session::{OpenError, Session, SlotId};

use crate::environment;
use crate::epoll;
use crate::log::say;
use crate::outside;
use crate::plugins;
use crate::spare;
use crate::state::{Outside, State};
use crate::table::{self, Entry, Kind, Socket};

/// Sessions with descriptors at one time: one fewer than the table's entries can tell apart.
const SESSIONS_MAX: usize = 15;
/// Our own descriptors are numbered from here, out of the way of programs that count on small numbers or `select`.
const PRIVATE_FD_MIN: i32 = 900;
const NONE: u8 = u8::MAX;
/// The number of no session: the last one the table's entries have room for, which is not given out.
pub(crate) const NOBODYS: u8 = SESSIONS_MAX as u8;

static SESSIONS: [AtomicPtr<Session>; SESSIONS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SESSIONS_MAX];
/// Descriptors of this process that belong to each.
static DESCRIPTORS: [AtomicU32; SESSIONS_MAX] = [const { AtomicU32::new(0) }; SESSIONS_MAX];
static CURRENT: AtomicU8 = AtomicU8::new(NONE);
/// Those that were in use before the current one, or had no descriptor when [`retire`] looked last, a bit each.
static IDLE: AtomicU32 = AtomicU32::new(0);
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

/// The session in use, and those that descriptors of this process belong to. What is found may be used by a call that is about
/// to return: [`retire`] frees none of them before two more sessions have come.
pub(crate) fn in_use() -> impl Iterator<Item = &'static Session> {
    let current = CURRENT.load(Ordering::Acquire);
    (0..NOBODYS).filter_map(move |number| {
        let descriptors = DESCRIPTORS.get(usize::from(number))?.load(Ordering::Acquire);
        (number == current || descriptors > 0).then(|| numbered(number)).flatten()
    })
}

/// One descriptor more, or fewer, belongs to the socket's session.
pub(crate) fn count(entry: Entry, is_added: bool) {
    let Some(socket) = entry.socket() else { return };
    let Some(counter) = DESCRIPTORS.get(usize::from(socket.session)) else { return };
    if is_added {
        counter.fetch_add(1, Ordering::AcqRel);
        let bit = 1 << socket.session;
        if IDLE.load(Ordering::Relaxed) & bit != 0 {
            IDLE.fetch_and(!bit, Ordering::Relaxed);
        }
    } else {
        counter.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any descriptor belongs to the card.
pub(crate) fn has_descriptors() -> bool {
    DESCRIPTORS.iter().any(|counter| counter.load(Ordering::Relaxed) > 0)
}

/// Before a fork while descriptors belong to the card, and where descriptors go to other programs: from now on others may
/// hold the same ones.
pub(crate) fn share() {
    ARE_SHARED.store(true, Ordering::Relaxed);
}

/// Whether another process may hold the same listeners, and meet this one in the sessions that serve them.
pub(crate) fn are_shared() -> bool {
    ARE_SHARED.load(Ordering::Relaxed)
}

/// The open session that has a socket with this placeholder.
pub(crate) fn owner_of(inode: u32) -> Option<(u8, &'static Session, SlotId)> {
    (0..NOBODYS).find_map(|number| {
        let session = numbered(number).filter(|session| session.is_alive())?;
        session.find_file(inode).map(|slot| (number, session, slot))
    })
}

/// Finds the session of a placeholder that came from another program, and maps it. It never is the one in use, so that what
/// this program opens is its own. `None`: the placeholder is none of any agent's. The error is a sentence for the operator.
pub(crate) fn claim(
    state: &mut State,
    placeholder: BorrowedFd<'_>,
) -> Result<Option<(u8, &'static Session)>, String> {
    for path in environment::session_paths() {
        match Session::claim(&path, PRIVATE_FD_MIN, placeholder) {
            Ok(Some(session)) => {
                prepare(state);
                retire();
                return keep(session).map(Some);
            }
            Ok(None) => {}
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(None)
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
    prepare(state);
    retire();
    let (session, path) = open(program, placeholder)?;
    say!(Info, "session open at {}", path.display());
    tell_what_is_outside(&session, state);
    plugins::tell_all(&session, &state.plugins);
    spare::keep(session.control(), PRIVATE_FD_MIN);
    let (number, session) = keep(session)?;
    let before = CURRENT.swap(number, Ordering::AcqRel);
    if before != NONE {
        IDLE.fetch_or(1 << before, Ordering::Relaxed);
    }
    match placeholder {
        None => epoll::session_opened(),
        Some(_) => epoll::session_joined(),
    }
    Ok((number, session))
}

/// Keeps a descriptor back again, once one was used up.
pub(crate) fn keep_spare() {
    if let Some(session) = numbered(CURRENT.load(Ordering::Acquire)) {
        spare::keep(session.control(), PRIVATE_FD_MIN);
    }
}

/// Once, before the first session.
fn prepare(state: &mut State) {
    if !state.is_prepared {
        state.is_prepared = true;
        environment::warn_of_mistakes();
        std::panic::set_hook(Box::new(report_panic));
    }
}

/// Gives a session a number.
fn keep(session: Session) -> Result<(u8, &'static Session), String> {
    let number = (0..SESSIONS_MAX)
        .find(|&number| SESSIONS[number].load(Ordering::Acquire).is_null())
        .ok_or("sockets of too many sessions are open")?;
    for fd in session.private_fds() {
        table::replace(fd, Entry::of(Kind::Private));
    }
    IDLE.fetch_and(!(1 << number), Ordering::Relaxed);
    SESSIONS[number].store(Box::into_raw(Box::new(session)), Ordering::Release);
    let number = u8::try_from(number).expect("there are fewer than 256 sessions");
    Ok((number, numbered(number).expect("stored above")))
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
    let Outside { listeners, connections } = state.outside;
    for (kind, notice, count) in [
        (Kind::KernelListener, Notice::ListenerOutside, listeners),
        (Kind::KernelConnection, Notice::ConnectionOutside, connections),
    ] {
        if count == 0 {
            continue;
        }
        let entries = table::entries(0, RawFd::MAX).filter(|(_, entry)| entry.kind() == kind);
        let mut names = entries.map(|(fd, _)| outside::name(fd, kind));
        for _ in 0..count {
            session.notice(notice, &names.next().unwrap_or_default());
        }
    }
}

/// Frees sessions without descriptors, but for the one in use, and those of other programs that had one the last time.
fn retire() {
    let latest = CURRENT.load(Ordering::Acquire);
    let was_idle = IDLE.load(Ordering::Relaxed);
    let mut idle = 0;
    for (number, (slot, descriptors)) in SESSIONS.iter().zip(&DESCRIPTORS).enumerate() {
        if descriptors.load(Ordering::Acquire) > 0 {
            continue;
        }
        let bit = 1 << number;
        if number == usize::from(latest) || was_idle & bit == 0 {
            idle |= bit;
            continue;
        }
        let pointer = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if pointer.is_null() {
            continue;
        }
        // SAFETY: `keep` leaked it from a Box, and the swap above took the only pointer to it. No descriptor belongs to it,
        // and another session came since it was in use or had one, so no call that began on one of its descriptors still runs.
        let session = unsafe { Box::from_raw(pointer) };
        for fd in session.private_fds() {
            table::replace(fd, Entry::PLAIN);
        }
        drop(session);
    }
    IDLE.store(idle, Ordering::Relaxed);
}

fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    match info.location() {
        Some(place) => {
            say!(Error, "internal fault at {}:{}; the call fails", place.file(), place.line());
        }
        None => say!(Error, "internal fault; the call fails"),
    }
}
