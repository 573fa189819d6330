//! The frames of a wire: from one interface to the other, each at its time.
//!
//! A thread of its own. It takes what is for the ends' addresses, which is all that TCP between them needs, past the kernel (AF_XDP), so that
//! neither end's kernel sees the other's frames a second time. What is no TCP is only delayed: a lost question for an address (RFC 826)
//! costs a second, and says nothing of a stack. Bound: `UNDER_WAY_MAX` frames under way, beyond which a frame is lost and counted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttshim_port::xdp::Xdp;
use mqttshim_port::{Port, Receive, Transmit};
use rustix::event::{PollFd, PollFlags, poll};

use super::checksum;
use super::faults::{Faults, Way};

/// Frames taken at once from one end.
const BURST_FRAMES: usize = 64;
/// More than any window here.
const UNDER_WAY_MAX: usize = 65_536;
/// How often it looks whether it is to end.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// One end of a wire.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The interface there.
    pub interface: &'a str,
    /// Who is reached through it.
    pub addresses: &'a [IpAddr],
}

/// Frames that carried TCP, both ways together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// That came to the wire.
    pub taken: u64,
    /// That it lost on purpose.
    pub lost: u64,
    /// That it lost because it, or an interface, had no room: such a run says nothing.
    pub overflowed: u64,
}

/// A frame that was lost on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loss {
    /// When it would have left.
    pub at: Instant,
    /// Of which connection: its port at the kernel's end.
    pub client: u16,
}

/// See the module. It ends when it is dropped.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    taken: AtomicU64,
    overflowed: AtomicU64,
    lost: Mutex<Vec<Loss>>,
}

impl Shared {
    fn lost(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    /// Joins the kernel's end and the card's. The interfaces are those of this thread's namespace.
    ///
    /// # Panics
    /// If they cannot be had.
    #[must_use]
    #[track_caller]
    pub fn start(kernel: End<'_>, card: End<'_>, faults: Faults, seed: u64) -> Wire {
        // Of a frame the address it is for counts: those at the other end.
        let open = |own: End<'_>, other: End<'_>| {
            Xdp::open(own.interface, other.addresses, None)
                .unwrap_or_else(|error| panic!("{}: {error}", own.interface))
        };
        let shared = Arc::new(Shared::default());
        let mut carrier = Carrier {
            ends: [open(kernel, card), open(card, kernel)],
            numbers: [0; 2],
            faults,
            seed,
            start: Instant::now(),
            under_way: BTreeMap::new(),
            serial: 0,
            spare: Vec::new(),
            shared: Arc::clone(&shared),
        };
        let run = move || {
            while !carrier.shared.is_over.load(Ordering::Relaxed) {
                carrier.turn();
            }
        };
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(run);
        Wire { shared, thread: Some(thread.expect("a thread")) }
    }

    /// What it has lost so far, in order.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.shared.lost().clone()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            taken: of(&self.shared.taken),
            lost: self.shared.lost().len() as u64,
            overflowed: of(&self.shared.overflowed),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_)) = ended
            && !std::thread::panicking()
        {
            panic!("the wire broke; its words are above");
        }
    }
}

/// What the thread has.
struct Carrier {
    /// The kernel's, the card's.
    ends: [Xdp; 2],
    /// Of the next frame from each.
    numbers: [u64; 2],
    faults: Faults,
    seed: u64,
    start: Instant,
    /// By arrival, then in the order they were sent: to which end, and what.
    under_way: BTreeMap<(Duration, u64), (usize, Vec<u8>)>,
    serial: u64,
    spare: Vec<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Carrier {
    fn turn(&mut self) {
        let now = self.start.elapsed();
        let taken = self.take(0, now) + self.take(1, now);
        self.deliver();
        if taken == 0 {
            self.rest();
        }
    }

    /// Takes what came from one end; says how many frames.
    fn take(&mut self, from: usize, now: Duration) -> usize {
        let Carrier { ends, numbers, faults, seed, start, under_way, serial, spare, shared } = self;
        let way = if from == 0 { Way::ToCard } else { Way::FromCard };
        let each = |frame: &mut [u8]| {
            let copies = match checksum::segment(frame) {
                Some(segment) => {
                    checksum::complete(frame, &segment);
                    shared.taken.fetch_add(1, Ordering::Relaxed);
                    numbers[from] += 1;
                    let copies = faults.copies(*seed, way, numbers[from] - 1);
                    if copies == [None; 2] {
                        shared.lost().push(Loss { at: *start + now, client: segment.ports[from] });
                    }
                    copies
                }
                None => [Some(faults.delay), None],
            };
            for after in copies.into_iter().flatten() {
                if under_way.len() >= UNDER_WAY_MAX {
                    shared.overflowed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(frame);
                *serial += 1;
                under_way.insert((now + after, *serial), (1 - from, copy));
            }
        };
        let (receive, _) = ends[from].halves();
        receive.burst(BURST_FRAMES, each).expect("the interface is there while the wire is")
    }

    /// Hands over what has arrived.
    fn deliver(&mut self) {
        let now = self.start.elapsed();
        let mut has_sent = [false; 2];
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= now
        {
            let (to, frame) = entry.remove();
            let (_, transmit) = self.ends[to].halves();
            if !transmit.has_room() {
                self.shared.overflowed.fetch_add(1, Ordering::Relaxed);
            }
            transmit.frame(frame.len(), |bytes| bytes.copy_from_slice(&frame));
            has_sent[to] = true;
            self.spare.push(frame);
        }
        for (end, has_sent) in self.ends.iter_mut().zip(has_sent) {
            let (_, transmit) = end.halves();
            if has_sent || transmit.is_pending() {
                transmit.kick().expect("the interface is there while the wire is");
            }
        }
    }

    /// Waits for a frame, or for one's time.
    fn rest(&self) {
        let now = self.start.elapsed();
        let next = self.under_way.keys().next().map(|(at, _)| at.saturating_sub(now));
        let pause = next.unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        let [one, other] = self.ends.each_ref().map(Port::readiness);
        let mut ready = [PollFd::new(&one, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
        // A signal is no frame: it looks again.
        let _ = poll(&mut ready, Some(&pause.try_into().expect("below a second")));
    }
}
