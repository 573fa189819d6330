//! What the kernel says about a process: proc(5).

use std::fs;
use std::time::Duration;

/// Time on a CPU so far, all threads, user and system.
///
/// From `schedstat`, which counts nanoseconds; ticks would hide everything below 10 ms. A thread that has ended is missing,
/// which no program here has.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
    let nanoseconds = tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanoseconds)
}

/// Resident memory, in bytes.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    let kibibytes = field(pid, "VmRSS:");
    kibibytes.split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        * 1024
}

/// The user the process acts as.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn effective_uid(pid: u32) -> Option<u32> {
    field(pid, "Uid:").split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Open descriptors.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is alive").count()
}

/// Whether there is such a process, zombies excluded.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// CPU time the process takes in a stretch of `length`: a measurement, the only thing that may take its time.
#[must_use]
pub fn cpu_during(pid: u32, length: Duration) -> Duration {
    let before = cpu(pid);
    std::thread::sleep(length);
    cpu(pid).saturating_sub(before)
}
