//! Frames in a ring of shared bytes: one writer, one reader.
//!
//! ```text
//! … │ length, 4 bytes │ 4 unused │ frame │ up to 8-byte boundary │ length │ …
//! ```
//!
//! Positions count bytes and never wrap. The writer shows what it wrote in groups, as one rings the doorbell of a network card,
//! and the reader gives back what it took in groups: each look at the other's word costs a cache line on its way between two
//! cores. A reader that finds nothing says that it sleeps, looks once more, and is then woken by the first thing shown; that is
//! the only call of the system.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::memory::{Memory, RING_BYTES, Words};

/// Longest frame, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 2048;
const RECORD_BYTES: usize = 8;
/// Frames that may be written before they are shown.
const GROUP: usize = 32;

/// The other end wrote what nobody writes by the rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Broken;

/// Bytes a frame takes up.
fn span(length: usize) -> u64 {
    (RECORD_BYTES + length.next_multiple_of(8)) as u64
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Arc<Memory>,
    ring: usize,
    head: u64,
    /// What of `head` the reader can see.
    shown: u64,
    /// Frames since then.
    hidden: usize,
    /// The reader's word when last looked at.
    tail: u64,
}

impl Writer {
    /// Nothing was written yet.
    pub(super) fn new(memory: Arc<Memory>, ring: usize) -> Writer {
        Writer { memory, ring, head: 0, shown: 0, hidden: 0, tail: 0 }
    }

    fn words(&self) -> &Words {
        self.memory.words(self.ring)
    }

    /// Whether a frame of any length fits.
    pub(super) fn has_room(&mut self) -> bool {
        let fits =
            |tail: u64| self.head.wrapping_sub(tail) <= RING_BYTES as u64 - span(FRAME_BYTES_MAX);
        if fits(self.tail) {
            return true;
        }
        // A word that lies leaves too little or too much room; the frames of that reader alone are lost.
        self.tail = self.words().tail.0.load(Ordering::Acquire);
        fits(self.tail)
    }

    /// Writes a frame, for which there must be room. `true`: the reader sleeps and must be woken.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        self.memory.copy_in(self.ring, self.head, &record);
        self.memory.copy_in(self.ring, self.head + RECORD_BYTES as u64, frame);
        self.head += span(frame.len());
        self.hidden += 1;
        self.hidden >= GROUP && self.show()
    }

    /// Shows what was written. `true`: the reader sleeps and must be woken.
    pub(super) fn show(&mut self) -> bool {
        if self.shown == self.head {
            return false;
        }
        (self.shown, self.hidden) = (self.head, 0);
        let words = self.words();
        words.head.0.store(self.head, Ordering::Release);
        // Against the fence in `Reader::sleep`: one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        words.sleeps.0.load(Ordering::Relaxed) == 1
            && words.sleeps.0.swap(0, Ordering::Relaxed) == 1
    }
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Reader {
    memory: Arc<Memory>,
    ring: usize,
    tail: u64,
    /// The writer's word when last looked at.
    head: u64,
    is_asleep: bool,
}

impl Reader {
    /// Nothing was read yet.
    pub(super) fn new(memory: Arc<Memory>, ring: usize) -> Reader {
        Reader { memory, ring, tail: 0, head: 0, is_asleep: false }
    }

    fn words(&self) -> &Words {
        self.memory.words(self.ring)
    }

    /// Hands at most `frames_max` frames to `each` and gives their room back. Fewer: there are no more, and the writer knows that the
    /// reader sleeps.
    pub(super) fn burst(
        &mut self,
        frames_max: usize,
        frame: &mut [u8; FRAME_BYTES_MAX],
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<usize, Broken> {
        let mut taken = 0;
        while taken < frames_max && (self.tail != self.head || self.look()?) {
            let length = self.take(frame)?;
            each(&mut frame[..length]);
            taken += 1;
        }
        if taken > 0 {
            self.words().tail.0.store(self.tail, Ordering::Release);
        }
        Ok(taken)
    }

    /// Looks whether there is more; if not, says that it sleeps.
    fn look(&mut self) -> Result<bool, Broken> {
        self.head = self.words().head.0.load(Ordering::Acquire);
        if self.tail == self.head && !self.is_asleep {
            self.is_asleep = true;
            self.words().sleeps.0.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.head = self.words().head.0.load(Ordering::Acquire);
        }
        if self.tail == self.head {
            return Ok(false);
        }
        if std::mem::take(&mut self.is_asleep) {
            self.words().sleeps.0.store(0, Ordering::Relaxed);
        }
        let unread = self.head.wrapping_sub(self.tail);
        if unread > RING_BYTES as u64 || !unread.is_multiple_of(8) { Err(Broken) } else { Ok(true) }
    }

    /// Takes the next frame out.
    fn take(&mut self, frame: &mut [u8; FRAME_BYTES_MAX]) -> Result<usize, Broken> {
        let mut record = [0; RECORD_BYTES];
        self.memory.copy_out(self.ring, self.tail, &mut record);
        let [a, b, c, d, ..] = record;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let unread = self.head.wrapping_sub(self.tail);
        if length == 0 || length > FRAME_BYTES_MAX || span(length) > unread {
            return Err(Broken);
        }
        let from = self.tail + RECORD_BYTES as u64;
        self.memory.copy_out(self.ring, from, &mut frame[..length]);
        self.tail += span(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Writer, Reader, Arc<Memory>) {
        let memory = Arc::new(Memory::create().unwrap().0);
        (Writer::new(Arc::clone(&memory), 0), Reader::new(Arc::clone(&memory), 0), memory)
    }

    fn read(reader: &mut Reader, frames_max: usize) -> Result<Vec<Vec<u8>>, Broken> {
        let mut frames = Vec::new();
        reader.burst(frames_max, &mut [0; FRAME_BYTES_MAX], |frame| frames.push(frame.to_vec()))?;
        Ok(frames)
    }

    #[test]
    fn frames_of_all_lengths_come_out_as_they_went_in_many_times_around() {
        let (mut writer, mut reader, _memory) = pair();
        let mut length = 1;
        for round in 0..3000_usize {
            let sent: Vec<Vec<u8>> = (0..round % 7 + 1)
                .map(|_| {
                    length = length * 31 % (FRAME_BYTES_MAX + 1);
                    vec![round as u8; length.max(1)]
                })
                .collect();
            for frame in &sent {
                assert!(writer.has_room());
                writer.push(frame);
            }
            writer.show();
            assert_eq!(read(&mut reader, 100).unwrap(), sent);
        }
    }

    #[test]
    fn what_is_not_shown_is_not_seen_but_a_group_shows_itself() {
        let (mut writer, mut reader, _memory) = pair();
        for count in 1..GROUP {
            writer.push(&[count as u8]);
        }
        assert!(read(&mut reader, 100).unwrap().is_empty());
        assert!(writer.push(&[0]), "its reader sleeps");
        assert_eq!(read(&mut reader, 100).unwrap().len(), GROUP);
    }

    #[test]
    fn a_reader_that_found_nothing_is_woken_once() {
        let (mut writer, mut reader, _memory) = pair();
        writer.push(&[1]);
        assert!(!writer.show(), "it has not said that it sleeps");
        assert_eq!(read(&mut reader, 100).unwrap().len(), 1);
        writer.push(&[2]);
        assert!(writer.show());
        writer.push(&[3]);
        assert!(!writer.show(), "it was woken already");
        assert_eq!(read(&mut reader, 1).unwrap(), [[2]]);
        writer.push(&[4]);
        assert!(!writer.show(), "it is awake");
        assert_eq!(read(&mut reader, 100).unwrap(), [[3], [4]]);
    }

    #[test]
    fn a_full_ring_has_no_room_until_its_reader_took_something() {
        let (mut writer, mut reader, _memory) = pair();
        let mut count = 0;
        while writer.has_room() {
            writer.push(&[7; 1000]);
            count += 1;
        }
        writer.show();
        assert!(count > 1000, "{count}");
        assert_eq!(read(&mut reader, 2).unwrap().len(), 2);
        assert!(writer.has_room());
    }

    #[test]
    fn a_writer_that_breaks_the_rules_is_found_out() {
        let words = |memory: &Memory, head: u64, length: u32| {
            memory.copy_in(0, 0, &length.to_ne_bytes());
            memory.words(0).head.0.store(head, Ordering::Release);
        };
        let cases = [
            (16, 0, "an empty frame"),
            (16, 9, "a frame longer than what was shown"),
            (4096, FRAME_BYTES_MAX as u32 + 1, "a frame that is too long"),
            (13, 5, "half a word"),
            (RING_BYTES as u64 + 8, 5, "more than a ring holds"),
        ];
        for (head, length, what) in cases {
            let (_writer, mut reader, memory) = pair();
            words(&memory, head, length);
            assert_eq!(read(&mut reader, 9), Err(Broken), "{what}");
        }
    }

    #[test]
    fn two_threads_lose_nothing_and_no_wake_up() {
        const FRAMES: u64 = 300_000;
        let (mut writer, mut reader, _memory) = pair();
        let (bell, rung) = std::sync::mpsc::channel();
        let writing = std::thread::spawn(move || {
            for number in 0..FRAMES {
                while !writer.has_room() {
                    std::thread::yield_now();
                }
                let mut wake = writer.push(&number.to_ne_bytes());
                wake |= number % 11 == 0 && writer.show();
                if wake {
                    bell.send(()).unwrap();
                }
            }
            if writer.show() {
                bell.send(()).unwrap();
            }
        });
        let mut expected = 0_u64;
        while expected < FRAMES {
            let frames = read(&mut reader, 64).unwrap();
            for frame in &frames {
                assert_eq!(frame[..], expected.to_ne_bytes());
                expected += 1;
            }
            if frames.len() < 64 && expected < FRAMES {
                rung.recv_timeout(std::time::Duration::from_secs(20)).expect("a wake-up");
            }
        }
        writing.join().unwrap();
    }
}
