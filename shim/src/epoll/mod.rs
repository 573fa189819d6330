//! Epoll at user level: for one set of the program, a connection's readability without a system call on either side.
//!
//! ```text
//! agent: data ──► session's ready list ──► epoll_wait takes it, looks at the ring ──► EPOLLIN ┐
//!                   └► bell, if it sleeps ──► kernel's epoll_wait ──► what else there is ─────┴► one answer
//! ```
//!
//! Every registration is in the kernel's set as well, so writability, ends, errors and the kernel's own descriptors come from
//! there, and each wait asks it. What is saved: the byte on the wire for each arrival (a member's news comes on the ready list,
//! see [`mqttshim_session::Session::list`]), `epoll_ctl` that changes nothing, and changes undone before the next wait.
//!
//! The wire stays the base. A member goes back to it for good when somebody waits for it elsewhere: a blocking call, `poll`,
//! `select`, another set, another process. The whole set does when it is copied, nested, polled, inherited by a fork, or
//! waited for by two threads at once. A connection that was passed on to another program never comes back. Never a member: edge-triggered, one-shot and exclusive registrations, whose meaning is in the
//! kernel's own bookkeeping, and descriptors of a forked child, which shares the session's one ready list.
//!
//! Not seen: an epoll set waited for through io_uring or a raw system call. `MQTTSHIM_EPOLL=wire` turns all of this off.

mod members;
mod wait;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use mqttshim_session::Session;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::descriptor;
use crate::descriptors;
use crate::environment;
use crate::lock::{ForkLock, Held};
use crate::sessions;
use crate::table::{self, Entry, Flag, Kind};

use members::{MEMBERS_MAX, Members};

pub(crate) use members::Interest;
pub(crate) use wait::{Collected, add, awake, begin};

/// Registrations that only the kernel can keep.
const KERNEL_ONLY: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) as u32;
/// No set.
const NONE: RawFd = -1;
/// How long a byte that the agent was asked for may take.
const BYTE_MILLISECONDS_MAX: i64 = 1000;

/// The set at user level. Copied from [`Set::epoll`] for a look without the lock.
static CURRENT: AtomicI32 = AtomicI32::new(NONE);
/// Threads waiting for it. One that was cancelled is never counted off, which only sends the set back to the wires.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// This process opened the session it uses.
static IS_OWNER: AtomicBool = AtomicBool::new(false);
/// What the bell's registration reports: no program's pointer is this one.
static BELL: u8 = 0;

static SET: ForkLock<Set> = ForkLock::new(Set {
    epoll: NONE,
    session: 0,
    members: Members::new(),
    asks_kernel_first: false,
});

struct Set {
    epoll: RawFd,
    session: u8,
    members: Members,
    /// Whose turn it is where there is room for few events.
    asks_kernel_first: bool,
}

/// What an `epoll_ctl` comes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// It is the kernel's; afterwards say [`controlled`].
    Kernel,
    /// It is done.
    Done,
    /// It failed.
    Fail(Errno),
}

fn bell_data() -> u64 {
    (&raw const BELL).addr() as u64
}

/// Whether `epoll` is the set at user level. One load.
#[inline]
pub(crate) fn is_current(epoll: RawFd) -> bool {
    CURRENT.load(Ordering::Relaxed) == epoll
}

/// A session was opened by this process.
pub(crate) fn session_opened() {
    IS_OWNER.store(true, Ordering::Relaxed);
}

/// A session was opened that other processes may join, or have: its one ready list is nobody's.
pub(crate) fn session_joined() {
    IS_OWNER.store(false, Ordering::Relaxed);
}

/// Before a fork: the child shares the kernel's set and the session's list, so both go back to the wires.
pub(crate) fn prepare_fork() {
    let mut set = SET.lock();
    set.leave();
    // Held until `release_after_fork`, so that the child gets it in order.
    std::mem::forget(set);
}

/// After a fork, in parent and child.
pub(crate) fn release_after_fork() {
    SET.release();
}

/// In a forked child.
pub(crate) fn become_child() {
    IS_OWNER.store(false, Ordering::Relaxed);
}

/// The program makes `operation` on a connection, before the kernel is asked.
pub(crate) fn control(epoll: RawFd, operation: i32, fd: RawFd, interest: Interest) -> Control {
    if !is_current(epoll) {
        return Control::Kernel;
    }
    let mut set = SET.lock();
    if set.epoll != epoll || !set.members.has(fd) || !set.is_alive(fd) {
        return Control::Kernel;
    }
    match operation {
        libc::EPOLL_CTL_ADD => Control::Fail(Errno::EXIST),
        libc::EPOLL_CTL_MOD if interest.events & KERNEL_ONLY != 0 => Control::Kernel,
        libc::EPOLL_CTL_MOD => set.change(fd, interest),
        _ => Control::Kernel,
    }
}

/// A registration of a listener was made or changed: the agent must know of watchers for edges.
pub(crate) fn watched(fd: RawFd, interest: Interest) {
    if interest.events & libc::EPOLLET as u32 != 0
        && let Some(socket) = table::get(fd).socket()
        && let Some(session) = sessions::of(socket)
    {
        session.mark_edge(socket.slot);
    }
}

/// The kernel made `operation` on a connection.
pub(crate) fn controlled(epoll: RawFd, operation: i32, fd: RawFd, interest: Interest) {
    let entry = table::get(fd);
    let Some((socket, session)) = socket_of(entry) else { return };
    if interest.events & libc::EPOLLET as u32 != 0 {
        session.mark_edge(socket.slot);
    }
    let mut set = SET.lock();
    if set.epoll == epoll {
        set.members.remove(fd);
    }
    if operation == libc::EPOLL_CTL_DEL {
        return;
    }
    let is_admitted = interest.events & KERNEL_ONLY == 0
        && set.admits(epoll, entry, session)
        && session.list(socket.slot);
    if is_admitted {
        set.members.add(fd, socket.slot.index, interest);
        set.look_at(fd, session);
    } else {
        unlist(fd, session, entry);
    }
}

/// Somebody is about to wait for `fd` without our `epoll_wait`: a connection goes to its wire, a set to the kernel.
pub(crate) fn waited_elsewhere(fd: RawFd) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Epoll {
        give_up(fd);
    } else if let Some((socket, session)) = socket_of(entry)
        && session.is_listed(socket.slot)
    {
        let mut set = SET.lock();
        set.tell_kernel();
        set.members.remove(fd);
        drop(set);
        unlist(fd, session, entry);
    }
}

/// Another process is about to get `fd`, or has it too: a connection goes to its wire for good, a set to the kernel.
pub(crate) fn passed_on(fd: RawFd) {
    waited_elsewhere(fd);
    if let Some((socket, session)) = socket_of(table::get(fd))
        && session.keep_on_wire(socket.slot)
    {
        descriptor::await_readable(fd, BYTE_MILLISECONDS_MAX);
    }
}

/// The set at `epoll` is known elsewhere: it stays with the kernel from now on.
pub(crate) fn give_up(epoll: RawFd) {
    descriptors::flag(epoll, Flag::Shared, true);
    if let Some(mut set) = lock(epoll) {
        set.leave();
    }
}

/// The descriptor with this entry is about to be closed.
pub(crate) fn closing(fd: RawFd, entry: Entry) {
    match entry.kind() {
        Kind::Connection if CURRENT.load(Ordering::Relaxed) != NONE => {
            if entry.has(Flag::Shared) {
                // epoll(7), Q6: a copy of it keeps the registration alive, in the kernel.
                waited_elsewhere(fd);
            }
            closed(fd, entry);
        }
        _ => closed(fd, entry),
    }
}

/// The descriptor with this entry was closed behind our back.
pub(crate) fn closed(fd: RawFd, entry: Entry) {
    match entry.kind() {
        Kind::Connection if CURRENT.load(Ordering::Relaxed) != NONE => {
            SET.lock().members.remove(fd)
        }
        Kind::Epoll if is_current(fd) => SET.lock().forget(),
        _ => {}
    }
}

fn socket_of(entry: Entry) -> Option<(table::Socket, &'static Session)> {
    let socket = entry.socket().filter(|_| entry.kind() == Kind::Connection)?;
    Some((socket, sessions::of(socket)?))
}

/// News of a connection comes on its wire from now on; a byte that belongs there is waited for, so that whoever looks next
/// finds it.
fn unlist(fd: RawFd, session: &Session, entry: Entry) {
    let Some(socket) = entry.socket() else { return };
    if session.is_listed(socket.slot) && session.unlist(socket.slot) {
        descriptor::await_readable(fd, BYTE_MILLISECONDS_MAX);
    }
}

impl Set {
    /// Whether a registration in `epoll` of a connection of `session` may be kept here. A set nobody else knows of becomes ours.
    fn admits(&mut self, epoll: RawFd, entry: Entry, session: &Session) -> bool {
        let Some(socket) = entry.socket() else { return false };
        let is_eligible = environment::is_epoll_at_user_level()
            && IS_OWNER.load(Ordering::Relaxed)
            && (socket.slot.index as usize) < MEMBERS_MAX
            && table::get(epoll) == Entry::of(Kind::Epoll);
        if !is_eligible {
            return false;
        }
        if self.epoll != NONE && self.session != socket.session && !self.session_lives() {
            // The card died: its connections have hung up, in the kernel's set.
            self.leave();
        }
        if self.epoll == NONE {
            return self.become_set(epoll, socket.session, session);
        }
        self.epoll == epoll && self.session == socket.session
    }

    fn become_set(&mut self, epoll: RawFd, number: u8, session: &Session) -> bool {
        let Some(bell) = session.bell() else { return false };
        let data = EventData::new_u64(bell_data());
        let flags = EventFlags::IN | EventFlags::ET;
        if epoll::add(descriptor::borrow(epoll), bell, data, flags).is_err() {
            return false;
        }
        self.members.clear();
        (self.epoll, self.session) = (epoll, number);
        CURRENT.store(epoll, Ordering::Relaxed);
        true
    }

    fn session(&self) -> Option<&'static Session> {
        sessions::numbered(self.session)
    }

    fn session_lives(&self) -> bool {
        self.session().is_some_and(Session::is_alive)
    }

    /// Whether the member at `fd` is still the socket it was.
    fn is_alive(&self, fd: RawFd) -> bool {
        let socket = table::get(fd).socket().filter(|socket| socket.session == self.session);
        let found = socket.and_then(|socket| Some((socket, self.session()?)));
        found.is_some_and(|(socket, session)| session.is_listed(socket.slot))
    }

    fn change(&mut self, fd: RawFd, interest: Interest) -> Control {
        let has_room = self.members.change(fd, interest);
        if let Some(session) = self.session() {
            self.look_at(fd, session);
        }
        if !has_room {
            return Control::Kernel;
        }
        if WAITING.load(Ordering::SeqCst) > 0 {
            // A thread sleeps over the kernel's set, which must know.
            self.tell_kernel();
        }
        Control::Done
    }

    /// Chains a member that has bytes, and wakes whoever sleeps.
    fn look_at(&mut self, fd: RawFd, session: &Session) {
        let Some(socket) = table::get(fd).socket() else { return };
        if session.has_bytes(socket.slot, descriptor::borrow(fd)) {
            self.members.chain(fd);
            session.rouse();
        }
    }

    /// Makes the changes the kernel has not heard of.
    fn tell_kernel(&mut self) {
        if self.epoll == NONE {
            return;
        }
        let epoll = descriptor::borrow(self.epoll);
        while let Some((fd, interest)) = self.members.take_change() {
            let flags = EventFlags::from_bits_retain(interest.events);
            let data = EventData::new_u64(interest.data);
            // A descriptor that was closed behind our back is the kernel's to forget.
            let _ = epoll::modify(epoll, descriptor::borrow(fd), data, flags);
        }
    }

    /// Everything goes back to the wires.
    fn leave(&mut self) {
        if self.epoll == NONE {
            return;
        }
        self.tell_kernel();
        if let Some(session) = self.session() {
            if let Some(bell) = session.bell() {
                // Closed behind our back: then there is nothing to take out.
                let _ = epoll::delete(descriptor::borrow(self.epoll), bell);
            }
            for socket in self.members.all().filter_map(|fd| table::get(fd).socket()) {
                session.unlist(socket.slot);
            }
        }
        self.forget();
    }

    /// The set is gone.
    fn forget(&mut self) {
        self.members.clear();
        self.epoll = NONE;
        CURRENT.store(NONE, Ordering::Relaxed);
    }
}

/// The set at `epoll`, if it is the one at user level.
fn lock(epoll: RawFd) -> Option<Held<'static, Set>> {
    is_current(epoll).then(|| SET.lock()).filter(|set| set.epoll == epoll)
}
