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
//! `tests` below: two readers or two writers against the agent, no lost wake-up and no stuck token.

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
            if has_data() && self.armed.swap(0, Ordering::SeqCst) == 1 {
                // The arming is taken back before the agent saw it: the byte on the placeholder stays, for this data.
                self.owe(u32::MAX);
            }
        }
        self.owe(self.extra.swap(0, Ordering::SeqCst));
        self.pay(take);
    }

    /// Whether a byte found on the placeholder of an empty ring means nothing: no data can have caused it. Not to be asked of
    /// a socket watched for edges, whose extra bytes may be seen before they are counted.
    #[cfg(not(loom))]
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
mod tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// The value last written. A read-modify-write, because loom lets a plain load return an older one even here.
    fn newest(word: &AtomicU32) -> u32 {
        word.fetch_or(0, Ordering::SeqCst)
    }

    /// One socket's receive side: a counter stands for the ring, another for the bytes on the placeholder.
    struct Receive {
        pushed: AtomicU32,
        taken: Mutex<u32>,
        wire: Mutex<u32>,
        armed: AtomicU32,
        extra: AtomicU32,
        debt: AtomicU32,
    }

    impl Receive {
        fn new() -> Arc<Self> {
            Arc::new(Receive {
                pushed: AtomicU32::new(0),
                taken: Mutex::new(0),
                wire: Mutex::new(0),
                armed: AtomicU32::new(1),
                extra: AtomicU32::new(0),
                debt: AtomicU32::new(0),
            })
        }

        fn agent_pushes(&self, edge: bool) {
            self.pushed.fetch_add(1, Ordering::SeqCst);
            if announce(&self.armed) {
                *self.wire.lock().unwrap() += 1;
            } else if edge {
                *self.wire.lock().unwrap() += 1;
                self.extra.fetch_add(1, Ordering::SeqCst);
            }
        }

        fn take_byte(&self) -> bool {
            let mut wire = self.wire.lock().unwrap();
            let is_there = *wire > 0;
            *wire -= u32::from(is_there);
            is_there
        }

        /// Reads at most one item.
        fn program_reads(&self) {
            let mut taken = self.taken.lock().unwrap();
            let has_data = *taken < self.pushed.load(Ordering::SeqCst);
            if has_data {
                *taken += 1;
            }
            if *taken == self.pushed.load(Ordering::SeqCst) {
                let token = RxToken { armed: &self.armed, extra: &self.extra, debt: &self.debt };
                let seen = *taken;
                token.drained(|| seen < self.pushed.load(Ordering::SeqCst), || self.take_byte());
            }
        }

        fn settle(&self) {
            let taken = *self.taken.lock().unwrap();
            let pushed = newest(&self.pushed);
            let wire = *self.wire.lock().unwrap();
            let debt = newest(&self.debt);
            let extra = newest(&self.extra);
            if taken < pushed {
                assert!(wire > debt + extra, "data is there and nothing wakes the program");
            }
            let armed = newest(&self.armed);
            assert_eq!(wire, debt + extra + 1 - armed, "a byte was lost or is stuck");
            // One more read after everything stopped leaves nothing behind.
            for _ in 0..=pushed {
                self.program_reads();
            }
            assert_eq!(*self.wire.lock().unwrap(), 0, "a stray byte spins the program");
            assert_eq!(newest(&self.debt), 0);
        }
    }

    fn two_readers_against_the_agent(edge: bool) {
        loom::model(move || {
            let socket = Receive::new();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let socket = Arc::clone(&socket);
                    thread::spawn(move || socket.program_reads())
                })
                .collect();
            socket.agent_pushes(edge);
            socket.agent_pushes(edge);
            for reader in readers {
                reader.join().unwrap();
            }
            socket.settle();
        });
    }

    #[test]
    fn two_readers_lose_no_wake_up_and_leave_no_byte() {
        two_readers_against_the_agent(false);
    }

    #[test]
    fn an_edge_triggered_socket_pays_for_its_extra_bytes() {
        two_readers_against_the_agent(true);
    }

    /// One socket's send side.
    struct Send {
        sent: Mutex<u32>,
        limit: AtomicU32,
        blocked: AtomicU32,
        fillers: Mutex<u32>,
        entries: Mutex<u32>,
    }

    impl Send {
        fn program_writes(&self) {
            let mut sent = self.sent.lock().unwrap();
            if *sent < self.limit.load(Ordering::SeqCst) {
                *sent += 1;
                return;
            }
            let first = block(&self.blocked, || {
                *self.fillers.lock().unwrap() += 1;
                Ok::<(), ()>(())
            });
            if first == Ok(true) {
                *self.entries.lock().unwrap() += 1;
            }
        }

        fn takes_entries(&self) -> bool {
            std::mem::take(&mut *self.entries.lock().unwrap()) > 0
        }

        fn agent_looks(&self) {
            let has_room = || true;
            let limit = self.limit.load(Ordering::SeqCst);
            if limit > 0 && unblock(&self.blocked, has_room) {
                *self.fillers.lock().unwrap() -= 1;
            }
        }
    }

    #[test]
    fn two_writers_are_woken_when_room_comes() {
        loom::model(|| {
            let socket = Arc::new(Send {
                sent: Mutex::new(0),
                limit: AtomicU32::new(0),
                blocked: AtomicU32::new(0),
                fillers: Mutex::new(1),
                entries: Mutex::new(0),
            });
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let socket = Arc::clone(&socket);
                    thread::spawn(move || socket.program_writes())
                })
                .collect();
            socket.limit.store(2, Ordering::SeqCst);
            socket.agent_looks();
            if socket.takes_entries() {
                socket.agent_looks();
            }
            for writer in writers {
                writer.join().unwrap();
            }
            while socket.takes_entries() {
                socket.agent_looks();
            }
            assert_eq!(newest(&socket.blocked), 0, "room came and nobody woke");
            assert_eq!(*socket.fillers.lock().unwrap(), 1, "a filler is stuck");
        });
    }
}
