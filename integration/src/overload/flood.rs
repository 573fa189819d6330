//! The flood itself: one loop that publishes, reads, and looks at the memory of others.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::outcome::{Outcome, Watch};
use super::publisher::Publisher;
use super::reader::Reader;
use super::{Cell, READERS, Slow};

const TOPIC: &str = "flood";
/// Messages that everybody reads, before the flood.
const CALM: u64 = 50;
/// How often a trickling reader reads, and how much.
const TRICKLE: Duration = Duration::from_millis(10);
const TRICKLE_BYTES: (usize, usize) = (256, 16 * 1024);
/// Between two messages after the flood, until everybody gets them again.
const AFTERWARDS: Duration = Duration::from_millis(20);
/// How long anything may take that is not the flood.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays a cell against the broker at `port`.
///
/// # Panics
/// If a reader loses its connection, or gets a message twice, broken or out of order; if those that read do not get what there is.
#[must_use]
#[track_caller]
pub fn play(cell: &Cell, port: u16, watch: Watch) -> Outcome {
    let mut flood = Flood::begin(cell, port, watch);
    flood.run(cell).unwrap_or_else(|error| panic!("{cell}: {error}"))
}

struct Flood {
    publisher: Publisher,
    readers: Vec<Reader>,
    watch: Watch,
    next_trickle: Instant,
    /// Slow readers read as all others.
    is_over: bool,
    trickle_bytes: Option<usize>,
}

impl Flood {
    #[track_caller]
    fn begin(cell: &Cell, port: u16, watch: Watch) -> Flood {
        let reader = |index: usize| {
            let is_slow = index < cell.slow_readers();
            let kind = if is_slow { "slow" } else { "quick" };
            Reader::subscribe(port, &format!("{kind}-{index}"), is_slow, TOPIC, cell.qos)
        };
        let (small, large) = TRICKLE_BYTES;
        let bytes = if cell.is_large() { large } else { small };
        Flood {
            readers: (0..READERS).map(reader).collect(),
            publisher: Publisher::connect(port, TOPIC, cell),
            watch,
            next_trickle: Instant::now(),
            is_over: true,
            trickle_bytes: (cell.slow == Slow::Trickle).then_some(bytes),
        }
    }

    fn run(&mut self, cell: &Cell) -> io::Result<Outcome> {
        let (messages, interval) = if cell.is_large() {
            (1_400, Duration::from_millis(4))
        } else {
            (16_000, Duration::from_micros(250))
        };
        self.steadily(CALM, Duration::from_millis(2))?;
        self.catch_up(CALM - 1)?;
        self.watch.begin();
        for reader in &mut self.readers {
            reader.share.delays.clear();
        }
        self.is_over = false;
        let start = Instant::now();
        self.steadily(messages, interval)?;
        let length = start.elapsed();
        let flood_end = self.publisher.published;
        let delays = self.readers.iter().map(|reader| reader.share.delays.len()).collect();
        self.is_over = true;
        // Until the queues of the slow ones have room again, so that what comes last comes to all.
        while self.readers.iter().any(|reader| reader.last < Some(flood_end)) {
            if start.elapsed() > length + PATIENCE {
                return Err(self.behind(flood_end));
            }
            self.steadily(1, AFTERWARDS)?;
        }
        self.catch_up(self.publisher.published - 1)?;
        Ok(self.outcome(length, delays))
    }

    /// Publishes so many messages, one each `interval`.
    fn steadily(&mut self, messages: u64, interval: Duration) -> io::Result<()> {
        let start = Instant::now();
        for number in 1..=u32::try_from(messages).expect("a few thousand") {
            self.publisher.publish()?;
            let next = start + interval * number;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                self.pump(left)?;
            }
        }
        Ok(())
    }

    /// Reads until everybody has message `number`, and the publisher all its acknowledgements.
    fn catch_up(&mut self, number: u64) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.publisher.is_told() || self.readers.iter().any(|it| it.last < Some(number)) {
            if Instant::now() > deadline {
                return Err(self.behind(number));
            }
            self.pump(Duration::from_millis(50))?;
        }
        Ok(())
    }

    fn behind(&self, number: u64) -> io::Error {
        let last: Vec<_> = self.readers.iter().map(|reader| reader.last).collect();
        let Publisher { published, acknowledged, .. } = self.publisher;
        let text = format!(
            "not everybody has message {number}: {last:?}, {acknowledged} of {published} acknowledged"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }

    /// Moves what can be moved, waiting at most so long for something.
    fn pump(&mut self, timeout: Duration) -> io::Result<()> {
        self.watch.look();
        let now = Instant::now();
        let trickle = self.trickle_bytes.filter(|_| !self.is_over && now >= self.next_trickle);
        if let Some(bytes) = trickle {
            self.next_trickle = now + TRICKLE;
            self.readers.iter_mut().filter(|it| it.is_slow).try_for_each(|it| it.read(bytes))?;
        }
        let is_reading = |reader: &Reader| self.is_over || !reader.is_slow;
        let which: Vec<usize> =
            (0..READERS).filter(|&index| is_reading(&self.readers[index])).collect();
        let mut wants = PollFlags::IN;
        wants.set(PollFlags::OUT, self.publisher.is_behind());
        let mut polled = vec![PollFd::new(&self.publisher.stream, wants)];
        polled.extend(which.iter().map(|&it| PollFd::new(&self.readers[it].stream, PollFlags::IN)));
        let timeout = Timespec::try_from(timeout.min(TRICKLE)).expect("milliseconds");
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|it| !it.revents().is_empty()).collect();
        drop(polled);
        if ready[0] {
            self.publisher.write()?;
            self.publisher.read()?;
        }
        for (index, is_ready) in which.into_iter().zip(&ready[1..]) {
            if *is_ready {
                let name = |error| io::Error::other(format!("reader {index}: {error}"));
                self.readers[index].read(usize::MAX).map_err(name)?;
            }
        }
        Ok(())
    }

    fn outcome(&mut self, length: Duration, delays: Vec<usize>) -> Outcome {
        self.watch.look();
        let mut outcome = Outcome::new(self.publisher.published, length, self.watch.peaks());
        for (reader, in_flood) in self.readers.drain(..).zip(delays) {
            let mut share = reader.share;
            share.delays.truncate(in_flood);
            if reader.is_slow { outcome.slow.push(share) } else { outcome.quick.push(share) }
        }
        outcome
    }
}
