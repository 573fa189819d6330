//! The two token protocols that mirror a socket's readiness onto its placeholder.
//!
//! The kernel answers `epoll`, `poll` and blocking waits on the placeholder, one end of a socket pair whose other end, the
//! *wire*, belongs to the agent. So "data is there" has to be a byte that lies on the placeholder, and "no room" a filler
//! byte that lies on the wire. Bytes are dear (a system call each), so they are sent only when a state changes:
//!
//! ```text
//! receive   agent: push, armed→0 ──► one byte              program: ring empty, 0→armed, one byte owed
//!                            └─────► or the ready list     program: ring empty, 0→armed, nothing owed
//! send      program: no room, filler, blocked 0→1, entry ──► agent: room and blocked 1→0, one filler taken
//! ```
//!
//! **Receive.** An arming says how it wants to be announced: by a byte on the wire, or on the session's ready list, which a
//! program that waits in its own `epoll_wait` looks at, and which costs nobody a system call. bytes sent − bytes taken −
//! bytes owed = 1 where the latest arming asked for a byte and was announced, else 0. The program never takes "everything
//! there is": that could eat the byte of newer data. It owes exactly one byte for each announced arming, takes back the arming
//! when data slipped in, and pays what it owes as far as the bytes have arrived, waiting a moment for one that is being sent;
//! the rest stays a debt for the next read.
//!
//! **Send.** The program cannot read its own filler back, so it never cancels: the Blocked entry it pushes *after* setting
//! `blocked` makes the agent look again, whatever credit came in between.
//!
//! Both run under a lock that admits one program thread at a time; agent and program race freely. Modelled with loom in
//! `tests`: two readers or two writers against the agent, no lost wake-up and no stuck token.

use crate::sync::{AtomicU32, Ordering, fence};

/// Not armed: what is in the ring was announced.
pub(crate) const ANNOUNCED: u32 = 0;
/// Armed: newer data is to be announced by a byte on the wire.
pub(crate) const BYTE: u32 = 1;
/// Armed: newer data is to be announced on the ready list.
pub(crate) const LIST: u32 = 2;

/// The receive side of one socket, as the program sees it.
pub(crate) struct RxToken<'a> {
    /// [`BYTE`] or [`LIST`]: the ring was seen empty and nothing was announced since. Set by the program, cleared by whoever
    /// swaps it first.
    pub(crate) armed: &'a AtomicU32,
    /// What the latest arming asked for. Guarded by the slot's lock.
    pub(crate) asked: &'a AtomicU32,
    /// Bytes the agent sent beyond the protocol, for edge-triggered watchers.
    pub(crate) extra: &'a AtomicU32,
    /// Bytes the program still has to take. Guarded by the slot's lock.
    pub(crate) debt: &'a AtomicU32,
}

impl RxToken<'_> {
    /// Call when the ring was emptied or found empty, under the slot's lock: newer data is to be announced by `how`. `has_data`
    /// looks at the ring again; `take` takes one byte from the placeholder and says whether there was one; it is told whether one
    /// must be there, or on its way this moment.
    /// `true`: data slipped in that nobody announces. It has to be put on the ready list.
    #[must_use]
    pub(crate) fn drained(
        &self,
        how: u32,
        has_data: impl FnOnce() -> bool,
        take: impl FnMut(bool) -> bool,
    ) -> bool {
        let before = self.asked.load(Ordering::Relaxed);
        self.asked.store(how, Ordering::Relaxed);
        let (mut is_unannounced, mut is_coming) = (false, false);
        if self.armed.swap(how, Ordering::SeqCst) == ANNOUNCED {
            let spent = u32::from(before == BYTE);
            self.owe(spent);
            fence(Ordering::SeqCst);
            if has_data() {
                // Taken back, unless the agent saw it: the byte on the placeholder stays, for this data. As in `pay`, the debt
                // is lowered first. On the list nothing stays: whoever looks there may have looked already.
                self.owe(spent.wrapping_neg());
                if self.armed.swap(ANNOUNCED, Ordering::SeqCst) == ANNOUNCED {
                    self.owe(spent);
                } else {
                    self.asked.store(before, Ordering::Relaxed);
                    is_unannounced = before == LIST;
                }
            } else {
                is_coming = spent == 1;
            }
        }
        self.owe(self.extra.swap(0, Ordering::SeqCst));
        self.pay(is_coming, take);
        is_unannounced
    }

    /// From now on data is announced by bytes. Under the slot's lock. `true`: there is data that was announced on the list
    /// alone, and the agent must be asked for its byte.
    pub(crate) fn wants_bytes(&self) -> bool {
        if self.asked.swap(BYTE, Ordering::Relaxed) == BYTE {
            return false;
        }
        let armed = self.armed.compare_exchange(LIST, BYTE, Ordering::SeqCst, Ordering::SeqCst);
        armed.is_err()
    }

    /// Whether the next data will be announced.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != ANNOUNCED
    }

    /// Whether a byte found on the placeholder of an empty ring means nothing: no data can have caused it. Not to be asked of
    /// a socket watched for edges, whose extra bytes may be seen before they are counted.
    pub(crate) fn is_stray(&self) -> bool {
        self.is_armed() && self.debt.load(Ordering::Relaxed) == 0
    }

    /// Adds to the debt, modulo 2³².
    fn owe(&self, bytes: u32) {
        let debt = self.debt.load(Ordering::Relaxed);
        self.debt.store(debt.wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Takes owed bytes while there are any. The debt is lowered first: a program that dies in between leaves a stray byte,
    /// which [`is_stray`](Self::is_stray) heals, not a debt that would one day eat a byte of newer data.
    fn pay(&self, is_coming: bool, mut take: impl FnMut(bool) -> bool) {
        while self.debt.load(Ordering::Relaxed) > 0 {
            self.owe(u32::MAX);
            if !take(is_coming) {
                self.owe(1);
                return;
            }
        }
    }
}

/// The agent pushed data. Says how it must announce that now: by [`BYTE`], by [`LIST`], or not at all.
pub(crate) fn announce(armed: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    armed.swap(ANNOUNCED, Ordering::SeqCst)
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
