//! Waiting for the set at user level: what is ready, and how it goes together with what the kernel reports.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use libc::epoll_event;
use mqttshim_session::Session;

use super::{Set, WAITING, bell_data, lock};
use crate::descriptor;
use crate::descriptors;
use crate::table::{self, Flag};

/// What the members have, before the kernel is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Collected {
    /// So many events were put down. Ask the kernel for more without waiting.
    Ready(usize),
    /// As `Ready`, but the kernel goes first: its events come before, up to the room there is.
    KernelFirst,
    /// None. The agent rings from now on: wait, then say [`awake`].
    Doze,
    /// The set is the kernel's by now.
    Kernel,
}

/// A thread begins to wait for `epoll`. Puts down what the members have; `may_wait`: it will sleep if that is nothing.
pub(crate) fn begin(epoll: RawFd, events: &mut [epoll_event], may_wait: bool) -> Collected {
    let Some(mut set) = lock(epoll) else { return Collected::Kernel };
    if WAITING.load(Ordering::SeqCst) > 0 {
        // Two threads share the set: the kernel knows whom to wake.
        descriptors::flag(epoll, Flag::Shared, true);
        set.leave();
        return Collected::Kernel;
    }
    let Some(session) = set.session() else { return Collected::Kernel };
    set.tell_kernel();
    loop {
        set.take_news(session);
        let ready = set.report(session, events);
        if ready > 0 {
            // Where there is room for few, both take turns.
            set.asks_kernel_first = ready == events.len() && !set.asks_kernel_first;
            let first = set.asks_kernel_first;
            return if first { Collected::KernelFirst } else { Collected::Ready(ready) };
        }
        if !may_wait {
            return Collected::Ready(0);
        }
        if session.doze() {
            WAITING.store(1, Ordering::SeqCst);
            return Collected::Doze;
        }
    }
}

/// The kernel put down the first `there` of `events`, after a sleep if it `slept`: adds what the members have, takes the bell
/// out, and returns how many there are.
pub(crate) fn awake(epoll: RawFd, events: &mut [epoll_event], there: usize, slept: bool) -> usize {
    if slept {
        WAITING.store(0, Ordering::SeqCst);
    }
    let found = there;
    let there = join(&mut events[..found], 0);
    let Some(mut set) = lock(epoll) else { return there };
    let Some(session) = set.session() else { return there };
    if there < found {
        session.hush();
    }
    session.wake();
    set.take_news(session);
    let added = set.report(session, &mut events[there..]);
    join(&mut events[..there + added], there)
}

/// The kernel put down what lies behind the first `ready` of `events`, which the members have: returns how many there are
/// together.
pub(crate) fn add(epoll: RawFd, events: &mut [epoll_event], ready: usize) -> usize {
    let data = bell_data();
    let rang = events[ready..].iter().any(|event| event.u64 == data);
    if rang && let Some(session) = lock(epoll).and_then(|set| set.session()) {
        session.hush();
    }
    join(events, ready)
}

impl Set {
    /// Chains what the agent put on the session's list.
    fn take_news(&mut self, session: &Session) {
        let mut newest_first = [0; 64];
        let mut count = 0;
        session.take_ready(|slot| {
            let Some(fd) = self.members.of_slot(slot) else { return };
            if count == newest_first.len() {
                // More at once: their order is as good as any.
                self.members.chain(fd);
                return;
            }
            newest_first[count] = fd;
            count += 1;
        });
        for &fd in newest_first[..count].iter().rev() {
            self.members.chain(fd);
        }
    }

    /// Puts down the members that are readable, as many as there is room for. Each goes to the chain's end, so that all have their
    /// turn.
    fn report(&mut self, session: &Session, events: &mut [epoll_event]) -> usize {
        let mut count = 0;
        let Some(last) = self.members.last() else { return 0 };
        while count < events.len() {
            let Some(fd) = self.members.unchain() else { break };
            if let Some(event) = self.readable(session, fd) {
                events[count] = event;
                count += 1;
                self.members.chain(fd);
            }
            if fd == last {
                break;
            }
        }
        count
    }

    /// What a member has to report now.
    fn readable(&self, session: &Session, fd: RawFd) -> Option<epoll_event> {
        let interest = self.members.interest(fd)?;
        let events = interest.events & (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
        let socket = table::get(fd).socket()?;
        let is_ready = session.has_bytes(socket.slot, descriptor::borrow(fd)) && events != 0;
        is_ready.then_some(epoll_event { events, u64: interest.data })
    }
}

/// Joins the events of one registration: `events[..first]` and the rest were found apart, each perhaps with half of it. The bell
/// is left out. Returns how many are left.
fn join(events: &mut [epoll_event], first: usize) -> usize {
    let mut kept = first;
    for at in first..events.len() {
        let event = events[at];
        if event.u64 == bell_data() {
            continue;
        }
        let data = event.u64;
        let same = (0..first).find(|&other| events[other].u64 == data);
        match same {
            Some(other) => events[other].events |= event.events,
            None => {
                events[kept] = event;
                kept += 1;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(events: u32, data: u64) -> epoll_event {
        epoll_event { events, u64: data }
    }

    #[test]
    fn events_of_one_registration_become_one_and_the_bell_none() {
        let mut events =
            [event(1, 7), event(1, 8), event(1, bell_data()), event(4, 8), event(1, 9)];
        let left = join(&mut events, 2);
        let seen: Vec<_> =
            events[..left].iter().map(|event| ({ event.events }, { event.u64 })).collect();
        assert_eq!(seen, [(1, 7), (5, 8), (1, 9)]);
        let mut bell = [event(1, bell_data())];
        assert_eq!(join(&mut bell, 0), 0);
    }
}
