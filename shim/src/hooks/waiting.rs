//! epoll_create, epoll_ctl, epoll_wait and their kin: the kernel's, but for the one set that is kept at user level.

use std::time::{Duration, Instant};

use libc::{c_int, c_long, epoll_event, sigset_t, timespec};

use super::{fail, hook, int, note};
use crate::descriptors;
use crate::epoll::{self, Collected, Control, Interest};
use crate::guard;
use crate::real;
use crate::table::{self, Entry, Flag, Kind};
use crate::trace::{self, MASK_BYTES};
use crate::watches::{self, Watch};

/// A set was made.
fn made(epoll: c_int) -> c_int {
    if epoll >= 0 {
        note(|| descriptors::set(epoll, Entry::of(Kind::Epoll)));
    }
    epoll
}

hook! {
    /// epoll_create(2)
    fn epoll_create(size: c_int) -> c_int
        as EpollCreate(Int(size.into()))
    {
        // SAFETY: the caller's arguments, unchanged.
        made(unsafe { real::epoll_create(size) })
    }
}

hook! {
    /// epoll_create1(2)
    fn epoll_create1(flags: c_int) -> c_int
        as EpollCreate1(Flags(names::EPOLL_CREATE, flags.cast_unsigned()))
    {
        // SAFETY: the caller's arguments, unchanged.
        made(unsafe { real::epoll_create1(flags) })
    }
}

/// A registration of a socket without a verdict was made, changed or deleted.
fn registered(epoll: c_int, operation: c_int, fd: c_int, interest: Interest) {
    let Interest { events, data } = interest;
    if operation == libc::EPOLL_CTL_DEL {
        watches::forget(epoll, fd);
    } else if !watches::remember(fd, Watch { epoll, events, data }) {
        // It could not be moved: the socket stays with the kernel.
        descriptors::flag(fd, Flag::Pending, true);
    }
}

/// The kernel did it: what must be known later is remembered.
fn controlled(epoll: c_int, operation: c_int, fd: c_int, interest: Interest) {
    match table::get(fd).kind() {
        Kind::Undecided | Kind::Bound => registered(epoll, operation, fd, interest),
        Kind::Listener => epoll::watched(fd, interest),
        Kind::Connection => epoll::controlled(epoll, operation, fd, interest),
        // A set in a set is waited for where we do not see it.
        Kind::Epoll => epoll::give_up(fd),
        _ => {}
    }
}

hook! {
    /// epoll_ctl(2)
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        as EpollCtl(
            Fd(epoll),
            Choice(names::EPOLL_CTL, operation),
            Fd(fd),
            Event(operation, event.addr()),
        )
    {
        let kind = table::get(fd).kind();
        if kind == Kind::Plain || guard::inside() {
            // SAFETY: the caller's arguments, unchanged.
            return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
        }
        let asks = operation != libc::EPOLL_CTL_DEL && !event.is_null();
        let interest = asks.then(|| {
            // SAFETY: not null, and an event as epoll_ctl(2) obliges its caller to pass; it may be packed.
            let event = unsafe { event.read_unaligned() };
            Interest { events: event.events, data: event.u64 }
        });
        if kind == Kind::Connection && let Some(interest) = interest {
            match guard::fenced(|| epoll::control(epoll, operation, fd, interest)) {
                Some(Control::Done) => {
                    trace::is_ring();
                    return 0;
                }
                Some(Control::Fail(errno)) => {
                    trace::is_ring();
                    return int(fail(errno));
                }
                Some(Control::Kernel) | None => {}
            }
        }
        let mut quiet = interest.filter(|_| kind == Kind::Listener).map(|interest| epoll_event {
            events: watches::of_listener(interest.events),
            u64: interest.data,
        });
        let asked = quiet.as_mut().map_or(event, |quiet| &raw mut *quiet);
        // SAFETY: the caller's arguments, or an event that is live, for the caller's.
        let outcome = unsafe { real::epoll_ctl(epoll, operation, fd, asked) };
        if outcome == 0 {
            let interest = interest.unwrap_or(Interest { events: 0, data: 0 });
            note(|| controlled(epoll, operation, fd, interest));
        }
        outcome
    }
}

/// How long a wait may take.
#[derive(Clone, Copy)]
enum Limit {
    Milliseconds(c_int),
    /// `None`: for ever.
    Exactly(Option<timespec>),
}

impl Limit {
    fn is_over(self) -> bool {
        self.duration() == Some(Duration::ZERO)
    }

    /// `None`: for ever, or what the kernel will refuse.
    fn duration(self) -> Option<Duration> {
        match self {
            Limit::Milliseconds(milliseconds) => {
                u64::try_from(milliseconds).ok().map(Duration::from_millis)
            }
            Limit::Exactly(limit) => {
                let limit = limit?;
                let seconds = u64::try_from(limit.tv_sec).ok()?;
                Some(Duration::new(seconds, u32::try_from(limit.tv_nsec).ok()?))
            }
        }
    }

    /// What is left of it after `waited`.
    fn less(self, waited: Duration) -> Limit {
        let Some(left) = self.duration().map(|limit| limit.saturating_sub(waited)) else {
            return self;
        };
        match self {
            Limit::Milliseconds(_) => Limit::Milliseconds(
                c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX),
            ),
            Limit::Exactly(_) => Limit::Exactly(Some(timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: c_long::from(left.subsec_nanos()),
            })),
        }
    }
}

/// An `epoll_wait` of either kind.
struct Wait {
    epoll: c_int,
    limit: Limit,
    mask: *const sigset_t,
}

impl Wait {
    /// Asks the kernel.
    fn kernel(&self, events: &mut [epoll_event], limit: Limit) -> c_int {
        let (target, room) =
            (events.as_mut_ptr(), c_int::try_from(events.len()).unwrap_or(c_int::MAX));
        match limit {
            Limit::Milliseconds(milliseconds) => {
                // SAFETY: as many events as there is room for; the mask is null or the caller's.
                unsafe { real::epoll_pwait(self.epoll, target, room, milliseconds, self.mask) }
            }
            Limit::Exactly(limit) => {
                let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                // SAFETY: as above; the limit is null or live.
                unsafe { real::epoll_pwait2(self.epoll, target, room, limit, self.mask) }
            }
        }
    }

    /// Asks the kernel without waiting, for what goes behind what is there; errors are left for the next wait.
    fn kernel_now(&self, events: &mut [epoll_event]) -> usize {
        let now = match self.limit {
            Limit::Milliseconds(_) => Limit::Milliseconds(0),
            Limit::Exactly(_) => Limit::Exactly(Some(timespec { tv_sec: 0, tv_nsec: 0 })),
        };
        if events.is_empty() {
            return 0;
        }
        usize::try_from(self.kernel(events, now)).unwrap_or(0)
    }

    /// Waits for the set at user level. No frame here has a destructor: a cancelled thread unwinds through the kernel's wait.
    fn user(&self, events: &mut [epoll_event]) -> c_int {
        let mut limit = self.limit;
        let started = (!limit.is_over()).then(Instant::now);
        loop {
            let begun = guard::fenced(|| epoll::begin(self.epoll, events, !limit.is_over()));
            let slept = match begun {
                Some(Collected::Ready(0)) => false,
                Some(Collected::Doze) => true,
                Some(Collected::Ready(ready)) => {
                    trace::is_ring();
                    let more = self.kernel_now(&mut events[ready..]);
                    let events = &mut events[..ready + more];
                    let all = guard::fenced(|| epoll::add(self.epoll, events, ready));
                    return count(all.unwrap_or(ready));
                }
                Some(Collected::KernelFirst) => {
                    let there = self.kernel_now(events);
                    let awake = guard::fenced(|| epoll::awake(self.epoll, events, there, false));
                    return count(awake.unwrap_or(there));
                }
                Some(Collected::Kernel) | None => return self.kernel(events, limit),
            };
            let found = self.kernel(events, limit);
            let there = usize::try_from(found).unwrap_or(0);
            let all = guard::fenced(|| epoll::awake(self.epoll, events, there, slept));
            let all = all.unwrap_or(there);
            if all > 0 || found <= 0 {
                return if all > 0 { count(all) } else { found };
            }
            // Only the bell rang, and what it rang for is read already.
            limit = started.map_or(limit, |started| self.limit.less(started.elapsed()));
        }
    }
}

fn count(events: usize) -> c_int {
    c_int::try_from(events).unwrap_or(c_int::MAX)
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `events` has room for `room` events, or `room` is not positive.
unsafe fn wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: Limit,
    mask: *const sigset_t,
) -> Option<c_int> {
    if !epoll::is_current(epoll) || events.is_null() || guard::inside() {
        return None;
    }
    let room = usize::try_from(room).ok().filter(|&room| room > 0)?;
    // SAFETY: not null, and the caller's to be written.
    let events = unsafe { std::slice::from_raw_parts_mut(events, room) };
    Some(Wait { epoll, limit, mask }.user(events))
}

hook! {
    /// epoll_wait(2)
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, milliseconds: c_int) -> c_int
        as EpollWait(Fd(epoll), EventsOut(events.addr()), Int(room.into()), Int(milliseconds.into()))
    {
        let limit = Limit::Milliseconds(milliseconds);
        // SAFETY: epoll_wait(2) obliges its caller to have room for so many events.
        if let Some(found) = unsafe { wait(epoll, events, room, limit, std::ptr::null()) } {
            return found;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::epoll_wait(epoll, events, room, milliseconds) }
    }
}

hook! {
    /// epoll_pwait(2)
    fn epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        room: c_int,
        milliseconds: c_int,
        mask: *const sigset_t,
    ) -> c_int
        as EpollPwait(
            Fd(epoll),
            EventsOut(events.addr()),
            Int(room.into()),
            Int(milliseconds.into()),
            Mask(mask.addr(), MASK_BYTES),
            Size(MASK_BYTES),
        )
    {
        let limit = Limit::Milliseconds(milliseconds);
        // SAFETY: epoll_pwait(2) obliges its caller to have room for so many events.
        if let Some(found) = unsafe { wait(epoll, events, room, limit, mask) } {
            return found;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::epoll_pwait(epoll, events, room, milliseconds, mask) }
    }
}

hook! {
    /// epoll_pwait2(2)
    fn epoll_pwait2(
        epoll: c_int,
        events: *mut epoll_event,
        room: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int
        as EpollPwait2(
            Fd(epoll),
            EventsOut(events.addr()),
            Int(room.into()),
            Timespec(timeout.addr()),
            Mask(mask.addr(), MASK_BYTES),
            Size(MASK_BYTES),
        )
    {
        // SAFETY: null or a timespec, as epoll_pwait2(2) obliges its caller to pass.
        let limit = Limit::Exactly(unsafe { timeout.as_ref() }.copied());
        // SAFETY: epoll_pwait2(2) obliges its caller to have room for so many events.
        if let Some(found) = unsafe { wait(epoll, events, room, limit, mask) } {
            return found;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) }
    }
}
