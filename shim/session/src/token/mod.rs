//! The two token protocols that mirror a socket's readiness onto its placeholder.
//!
//! The kernel answers `epoll`, `poll` and blocking waits on the placeholder, one end of a socket pair whose other end, the
//! *wire*, belongs to the agent. So "data is there" has to be a byte that lies on the placeholder, and "no room" a filler
//! byte that lies on the wire. Bytes are dear (a system call each), so they are sent only when a state changes:
//!
//! ```text
//! receive   agent: push, armed 1→0 ──► one byte            program: ring empty, armed 0→1, one byte owed
//! send      program: no room, filler, blocked 0→1, entry ──► agent: room and blocked 1→0, one filler taken
//! ```
//!
//! **Receive.** bytes sent − bytes taken − bytes owed = 1 − armed. The program never takes "everything there is": that
//! could eat the byte of newer data. It owes exactly one byte for each arming, takes back the arming when data slipped in,
//! and pays what it owes as far as the bytes have arrived; the rest stays a debt for the next read.
//!
//! **Send.** The program cannot read its own filler back, so it never cancels: the Blocked entry it pushes *after* setting
//! `blocked` makes the agent look again, whatever credit came in between.
//!
//! Both run under a lock that admits one program thread at a time; agent and program race freely. Modelled with loom in
//! `tests`: two readers or two writers against the agent, no lost wake-up and no stuck token.

use crate::sync::{AtomicU32, Ordering, fence};

/// The receive side of one socket, as the program sees it.
pub(crate) struct RxToken<'a> {
    /// 1: the ring was seen empty and no byte is on its way. Set by the program, cleared by whoever swaps it first.
    pub(crate) armed: &'a AtomicU32,
    /// Bytes the agent sent beyond the protocol, for edge-triggered watchers.
    pub(crate) extra: &'a AtomicU32,
    /// Bytes the program still has to take. Guarded by the slot's lock.
    pub(crate) debt: &'a AtomicU32,
}

impl RxToken<'_> {
    /// Call when the ring was emptied or found empty, under the slot's lock. `has_data` looks at the ring again; `take`
    /// takes one byte from the placeholder without blocking and says whether there was one.
    pub(crate) fn drained(&self, has_data: impl FnOnce() -> bool, take: impl FnMut() -> bool) {
        if self.armed.swap(1, Ordering::SeqCst) == 0 {
            self.owe(1);
            fence(Ordering::SeqCst);
            if has_data() {
                // Taken back, unless the agent saw it: the byte on the placeholder stays, for this data. As in `pay`, the debt
                // is lowered first.
                self.owe(u32::MAX);
                if self.armed.swap(0, Ordering::SeqCst) == 0 {
                    self.owe(1);
                }
            }
        }
        self.owe(self.extra.swap(0, Ordering::SeqCst));
        self.pay(take);
    }

    /// Whether a byte found on the placeholder of an empty ring means nothing: no data can have caused it. Not to be asked of
    /// a socket watched for edges, whose extra bytes may be seen before they are counted.
    pub(crate) fn is_stray(&self) -> bool {
        self.armed.load(Ordering::SeqCst) == 1 && self.debt.load(Ordering::Relaxed) == 0
    }

    /// Adds to the debt, modulo 2³².
    fn owe(&self, bytes: u32) {
        let debt = self.debt.load(Ordering::Relaxed);
        self.debt.store(debt.wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Takes owed bytes while there are any. The debt is lowered first: a program that dies in between leaves a stray byte,
    /// which [`is_stray`](Self::is_stray) heals, not a debt that would one day eat a byte of newer data.
    fn pay(&self, mut take: impl FnMut() -> bool) {
        while self.debt.load(Ordering::Relaxed) > 0 {
            self.owe(u32::MAX);
            if !take() {
                self.owe(1);
                return;
            }
        }
    }
}

/// The agent pushed data. Says whether it must put a byte on the wire now.
pub(crate) fn announce(armed: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    armed.swap(0, Ordering::SeqCst) == 1
}

/// The program found no room to send. Says whether it is the first to: then it sends a filler by `filler`, and afterwards
/// pushes a Blocked entry. Call under the lock of the send ring.
pub(crate) fn block<E>(
    blocked: &AtomicU32,
    filler: impl FnOnce() -> Result<(), E>,
) -> Result<bool, E> {
    if blocked.load(Ordering::SeqCst) == 1 {
        return Ok(false);
    }
    filler()?;
    blocked.swap(1, Ordering::SeqCst);
    Ok(true)
}

/// The agent granted credit or met a Blocked entry. Says whether it must take one filler off the wire now.
pub(crate) fn unblock(blocked: &AtomicU32, has_room: impl FnOnce() -> bool) -> bool {
    blocked.load(Ordering::SeqCst) == 1 && has_room() && blocked.swap(0, Ordering::SeqCst) == 1
}

#[cfg(all(test, loom))]
mod tests;
