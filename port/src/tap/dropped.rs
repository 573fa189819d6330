//! How many frames the kernel had for a device and no place to let them wait: it counts them as dropped on sending, in `/proc/net/dev`.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Of the network namespace this thread is in.
const PATH: &str = "/proc/thread-self/net/dev";
/// The kernel writes a line for each interface there is, so it is not asked more often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Numbers before the one of frames dropped on sending: eight of receiving; bytes, packets and errors.
const NUMBERS_BEFORE: usize = 8 + 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Dropped {
    name: String,
    /// Before the device was opened.
    before: u64,
    known: Cell<(Instant, u64)>,
}

impl Dropped {
    /// Counts from now on.
    pub(super) fn of(name: &str) -> Dropped {
        let before = ask(name).unwrap_or_default();
        Dropped { name: name.to_owned(), before, known: Cell::new((Instant::now(), before)) }
    }

    /// Frames dropped; known to a second.
    pub(super) fn count(&self) -> u64 {
        let (asked, mut count) = self.known.get();
        if asked.elapsed() >= INTERVAL {
            // Where that cannot be read, nothing more is known.
            count = ask(&self.name).unwrap_or(count);
            self.known.set((Instant::now(), count));
        }
        count.saturating_sub(self.before)
    }
}

fn ask(name: &str) -> Option<u64> {
    find(&std::fs::read_to_string(PATH).ok()?, name)
}

fn find(text: &str, name: &str) -> Option<u64> {
    let numbers =
        text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    numbers?.split_ascii_whitespace().nth(NUMBERS_BEFORE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    2    0     0          0         0      100       1    0    3    0     0       0          0
   mq0:1234567890       9    0    0    0     0          0         0     4711      12    0  501    0     0       0          0
  mq01:       0       0    0    0    0     0          0         0        0       0    0    7    0     0       0          0
";

    #[test]
    fn what_was_dropped_on_sending_is_found_by_the_whole_name() {
        assert_eq!(find(TEXT, "mq0"), Some(501));
        assert_eq!(find(TEXT, "mq01"), Some(7));
        assert_eq!(find(TEXT, "lo"), Some(3));
        assert_eq!(find(TEXT, "mq"), None);
    }
}
