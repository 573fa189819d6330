//! What a process has cost so far: CPU time and context switches.
//!
//! proc(5). CPU time is the sum of `/proc/PID/task/*/schedstat` (nanoseconds on a CPU); where the kernel has no
//! schedstat, of `/proc/PID/stat` (ticks). The split into user and system comes from `/proc/PID/stat` always. Interrupt
//! work that the kernel does while a process runs counts as that process's. A thread that ends between two looks takes
//! its schedstat with it; the larger of both sums is used then.

use std::fs;
use std::io;

use serde::Serialize;

/// Whose cost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Subject {
    /// A whole process.
    Process(u32),
    /// One thread of this process.
    OwnThread(u32),
}

/// A reading, or the difference of two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// On a CPU, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// In user mode, nanoseconds, in steps of one tick.
    pub(crate) user_ns: u64,
    /// In the kernel, nanoseconds, in steps of one tick.
    pub(crate) system_ns: u64,
    /// Times it went to sleep by itself, so times it was woken.
    pub(crate) voluntary: u64,
    /// Times it was pushed off the CPU.
    pub(crate) involuntary: u64,
}

impl Cost {
    /// What was spent since `earlier`.
    pub(crate) fn since(self, earlier: Cost) -> Cost {
        Cost {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }

    /// Adds `other`.
    pub(crate) fn add(&mut self, other: Cost) {
        self.cpu_ns += other.cpu_ns;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

/// Reads what `subject` has cost since it started.
pub(crate) fn read(subject: Subject) -> io::Result<Cost> {
    let (stat, tasks) = match subject {
        Subject::Process(pid) => {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
            let tasks = tasks.filter_map(|task| Some(task.ok()?.path())).collect();
            (format!("/proc/{pid}/stat"), tasks)
        }
        Subject::OwnThread(tid) => {
            let task = format!("/proc/self/task/{tid}");
            (format!("{task}/stat"), vec![task.into()])
        }
    };
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let (user, system) =
        parse_stat(&fs::read_to_string(stat)?).ok_or(io::ErrorKind::InvalidData)?;
    let mut cost = Cost { user_ns: user * tick_ns, system_ns: system * tick_ns, ..Cost::default() };
    let mut precise = 0;
    for task in &tasks {
        // A thread may end while we look.
        let text = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        precise += parse_schedstat(&text("schedstat")).unwrap_or(0);
        let status = text("status");
        cost.voluntary += status_field(&status, "voluntary_ctxt_switches:");
        cost.involuntary += status_field(&status, "nonvoluntary_ctxt_switches:");
    }
    // Ticks may run up to two steps ahead of the precise sum; only more than that means a thread is missing.
    let coarse = cost.user_ns + cost.system_ns;
    cost.cpu_ns = if coarse > precise + 2 * tick_ns { coarse } else { precise };
    Ok(cost)
}

/// What the process is called. A program started through its dynamic loader is called what the loader was told.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned();
    if !name.starts_with("ld-linux") && name != "ld.so" {
        return Some(name);
    }
    let command = command_line(pid).unwrap_or_default();
    let mut words = command.split(' ').skip_while(|word| *word != "--argv0").skip(1);
    Some(words.next().map_or(name, str::to_owned))
}

/// How the process was started.
pub(crate) fn command_line(pid: u32) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = raw.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    Some(words.join(" ").trim_end().to_owned())
}

/// utime and stime, fields 14 and 15. The name in field 2 may hold spaces and brackets: count from the last `)`.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn status_field(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 123 45 0 0 20 0 1";
        assert_eq!(parse_stat(text), Some((123, 45)));
        assert_eq!(parse_stat("7 (cut) S 1"), None);
    }

    #[test]
    fn voluntary_switches_are_not_taken_for_involuntary_ones() {
        let text = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(status_field(text, "voluntary_ctxt_switches:"), 5);
        assert_eq!(status_field(text, "nonvoluntary_ctxt_switches:"), 9);
    }

    #[test]
    fn work_of_this_process_shows_up() {
        let subject = Subject::Process(std::process::id());
        let before = read(subject).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut seen = 0;
        while seen < 20_000_000 && std::time::Instant::now() < deadline {
            seen = read(subject).unwrap().since(before).cpu_ns;
        }
        assert!(seen >= 20_000_000, "{seen} ns after ten seconds of work");
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(read(Subject::Process(u32::MAX)).is_err());
    }
}
