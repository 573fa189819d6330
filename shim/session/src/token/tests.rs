//! Both protocols under every interleaving loom finds within its bound of preemptions.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release -p mqttshim-session --lib --target-dir target/loom`
//!
//! Modelled are the functions of this module as they stand, with what surrounds them in `program::stream` (a read that looks
//! at the ring, settles the token, then looks at the placeholder) and in the agent (push, announce; grant, look) reduced to
//! counters: the ring is the number of bytes pushed and taken, the placeholder the number of bytes on it.

use super::*;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The value last written. A read-modify-write, because loom lets a plain load return an older one even here.
fn newest(word: &AtomicU32) -> u32 {
    word.fetch_or(0, Ordering::SeqCst)
}

/// One socket's receive side.
struct Receive {
    pushed: AtomicU32,
    /// Also the slot's lock: readers take turns.
    taken: Mutex<u32>,
    wire: Mutex<u32>,
    armed: AtomicU32,
    asked: AtomicU32,
    extra: AtomicU32,
    debt: AtomicU32,
    is_edge: bool,
    /// How the program wants to be told; whether it is on the ready list; bytes the agent was asked for.
    how: AtomicU32,
    news: AtomicU32,
    wants: AtomicU32,
}

impl Receive {
    fn new(is_edge: bool, how: u32) -> Arc<Self> {
        Arc::new(Receive {
            pushed: AtomicU32::new(0),
            taken: Mutex::new(0),
            wire: Mutex::new(0),
            armed: AtomicU32::new(how),
            asked: AtomicU32::new(how),
            extra: AtomicU32::new(0),
            debt: AtomicU32::new(0),
            is_edge,
            how: AtomicU32::new(how),
            news: AtomicU32::new(0),
            wants: AtomicU32::new(0),
        })
    }

    fn token(&self) -> RxToken<'_> {
        RxToken { armed: &self.armed, asked: &self.asked, extra: &self.extra, debt: &self.debt }
    }

    /// `Host::deliver` and what the agent does about its verdict.
    fn agent_pushes(&self) {
        self.pushed.fetch_add(1, Ordering::SeqCst);
        match announce(&self.armed) {
            BYTE => *self.wire.lock().unwrap() += 1,
            LIST => _ = self.news.swap(1, Ordering::SeqCst),
            _ if self.is_edge => {
                *self.wire.lock().unwrap() += 1;
                self.extra.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    /// A turn of the program's own epoll: takes the news, looks at the socket while it may be readable, reads at most one byte of
    /// it. Says whether it may be readable still.
    fn program_polls(&self, may_be_readable: bool) -> bool {
        if self.news.swap(0, Ordering::SeqCst) == 0 && !may_be_readable {
            return false;
        }
        let mut taken = self.taken.lock().unwrap();
        let has_data = |taken: u32| taken < newest(&self.pushed);
        if !has_data(*taken) && !self.token().is_armed() {
            if self.token().drained(LIST, || has_data(*taken), |_| self.take_byte()) {
                _ = self.news.swap(1, Ordering::SeqCst);
            }
        }
        let is_readable = has_data(*taken);
        drop(taken);
        if is_readable {
            self.program_reads();
        }
        is_readable
    }

    /// `Session::unlist`.
    fn program_unlists(&self) {
        let _taken = self.taken.lock().unwrap();
        self.how.store(BYTE, Ordering::SeqCst);
        if self.token().wants_bytes() {
            self.wants.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What the agent does about a WantsByte entry.
    fn agent_answers(&self) {
        *self.wire.lock().unwrap() += self.wants.swap(0, Ordering::SeqCst);
    }

    fn take_byte(&self) -> bool {
        let mut wire = self.wire.lock().unwrap();
        let is_there = *wire > 0;
        *wire -= u32::from(is_there);
        is_there
    }

    /// `Session::read` of at most one byte.
    fn program_reads(&self) {
        let mut taken = self.taken.lock().unwrap();
        loop {
            let is_found = *taken < self.pushed.load(Ordering::SeqCst);
            *taken += u32::from(is_found);
            let seen = *taken;
            let has_data = || seen < self.pushed.load(Ordering::SeqCst);
            if !has_data() {
                let how = self.how.load(Ordering::SeqCst);
                if self.token().drained(how, has_data, |_| self.take_byte()) {
                    _ = self.news.swap(1, Ordering::SeqCst);
                }
            }
            if is_found || self.looks_at_placeholder(seen) {
                return;
            }
        }
    }

    /// `look_at_placeholder`: whether the read ends with nothing.
    fn looks_at_placeholder(&self, seen: u32) -> bool {
        let is_readable = *self.wire.lock().unwrap() > 0;
        if seen < self.pushed.load(Ordering::SeqCst) {
            return false;
        }
        if is_readable && !self.is_edge && self.token().is_stray() {
            self.take_byte();
        }
        true
    }

    fn settle(&self) {
        let taken = *self.taken.lock().unwrap();
        let pushed = newest(&self.pushed);
        let wire = *self.wire.lock().unwrap();
        let debt = newest(&self.debt);
        let extra = newest(&self.extra);
        let armed = newest(&self.armed);
        let announced = u32::from(newest(&self.asked) == BYTE && armed == ANNOUNCED);
        if taken < pushed {
            let is_told = announced == 1 || newest(&self.news) == 1;
            assert!(is_told && armed == ANNOUNCED, "data is there and nothing wakes the program");
        }
        assert_eq!(wire, debt + extra + announced, "a byte was lost or is stuck");
        if newest(&self.how) == BYTE {
            assert_eq!(newest(&self.asked), BYTE, "whoever waits on the wire waits for ever");
        }
        // Reads after everything stopped leave nothing behind.
        for _ in 0..=pushed {
            self.program_reads();
        }
        assert_eq!(*self.taken.lock().unwrap(), pushed);
        assert_eq!(*self.wire.lock().unwrap(), 0, "a stray byte spins the program");
        assert_eq!(newest(&self.debt), 0);
    }
}

fn two_readers_against_the_agent(is_edge: bool, how: u32) {
    loom::model(move || {
        let socket = Receive::new(is_edge, how);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let socket = Arc::clone(&socket);
                thread::spawn(move || socket.program_reads())
            })
            .collect();
        socket.agent_pushes();
        socket.agent_pushes();
        for reader in readers {
            reader.join().unwrap();
        }
        socket.settle();
    });
}

#[test]
fn two_readers_lose_no_wake_up_and_leave_no_byte() {
    two_readers_against_the_agent(false, BYTE);
}

#[test]
fn two_readers_of_a_listed_socket_hear_of_everything_without_a_byte() {
    two_readers_against_the_agent(false, LIST);
}

#[test]
fn a_poller_hears_of_what_another_thread_leaves_it() {
    loom::model(|| {
        let socket = Receive::new(false, LIST);
        let reader = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || socket.program_reads())
        };
        let agent = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || {
                socket.agent_pushes();
                socket.agent_pushes();
            })
        };
        let mut may_be_readable = socket.program_polls(false);
        reader.join().unwrap();
        agent.join().unwrap();
        // One more after everything that was announced so far was read.
        for last in [false, true] {
            if last {
                socket.agent_pushes();
            }
            while newest(&socket.news) == 1 || may_be_readable {
                may_be_readable = socket.program_polls(may_be_readable);
            }
            assert_eq!(*socket.taken.lock().unwrap(), newest(&socket.pushed), "nobody was told");
        }
    });
}

#[test]
fn a_socket_that_goes_back_to_its_wire_under_way_finds_its_byte_there() {
    loom::model(|| {
        let socket = Receive::new(false, LIST);
        let others = [Receive::program_reads, Receive::program_unlists].map(|does| {
            let socket = Arc::clone(&socket);
            thread::spawn(move || does(&socket))
        });
        socket.agent_pushes();
        socket.agent_pushes();
        for other in others {
            other.join().unwrap();
        }
        socket.agent_answers();
        socket.settle();
    });
}

#[test]
fn an_edge_triggered_socket_pays_for_its_extra_bytes() {
    two_readers_against_the_agent(true, BYTE);
}

/// One socket's send side.
struct Send {
    /// Also the lock of the send ring: writers take turns.
    lock: Mutex<()>,
    sent: AtomicU32,
    limit: AtomicU32,
    blocked: AtomicU32,
    fillers: Mutex<u32>,
    /// Blocked entries in the ring.
    entries: Mutex<u32>,
}

impl Send {
    /// `Session::write` of one byte.
    fn program_writes(&self) {
        let _guard = self.lock.lock().unwrap();
        let sent = self.sent.load(Ordering::Relaxed);
        if sent < self.limit.load(Ordering::SeqCst) {
            self.sent.store(sent + 1, Ordering::SeqCst);
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

    fn room(&self) -> u32 {
        self.limit.load(Ordering::SeqCst) - self.sent.load(Ordering::SeqCst)
    }

    /// `Host::unblocks` and what the agent does about its verdict.
    fn agent_looks(&self) {
        let mut has_room = false;
        let unblocks = unblock(&self.blocked, || {
            has_room = self.room() > 0;
            has_room
        });
        if unblocks {
            assert!(has_room, "a writer is woken for nothing");
            *self.fillers.lock().unwrap() -= 1;
        }
    }
}

#[test]
fn two_writers_are_woken_when_room_comes() {
    loom::model(|| {
        let socket = Arc::new(Send {
            lock: Mutex::new(()),
            sent: AtomicU32::new(0),
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
        for _ in 0..2 {
            socket.limit.fetch_add(1, Ordering::SeqCst);
            socket.agent_looks();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        while socket.takes_entries() {
            socket.agent_looks();
        }
        let blocked = newest(&socket.blocked);
        let room = newest(&socket.limit) - newest(&socket.sent);
        assert!(blocked == 0 || room == 0, "room came and nobody woke");
        assert_eq!(*socket.fillers.lock().unwrap(), 1 + blocked, "a filler is stuck");
    });
}
