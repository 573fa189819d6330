//! Garbage in a session's memory, written through the program that maps it: proc(5), `/proc/PID/mem`.
//!
//! Nothing is known here of what lies where but that the first page is the header, the table follows, and the rings come
//! last: the layout may change, and garbage is garbage.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};

use crate::differential::Rng;

/// The name of a session's memory in `/proc/PID/maps`.
const NAME: &str = "memfd:mqttshim-session";
const PAGE: u64 = 4096;
/// What mostly is the table of the first sockets.
const TABLE: u64 = 16 * 1024;

/// How many sessions a process has mapped. None for one that is gone.
pub(super) fn mapped(pid: u32) -> usize {
    ranges(pid).len()
}

/// Where the sessions are mapped: start and length.
fn ranges(pid: u32) -> Vec<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let ours = maps.lines().filter(|line| line.contains(NAME));
    ours.filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)? - number(start)?))
    })
    .collect()
}

/// Writes garbage over the newest session of process `pid`, by a seed. `is_mean`: also words that mean something.
///
/// # Errors
/// If the process is gone, or holds no session.
pub(super) fn spread(pid: u32, seed: u64, is_mean: bool) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let &(start, length) = ranges(pid).last().ok_or(io::ErrorKind::NotFound)?;
    let mut memory = File::options().write(true).open(format!("/proc/{pid}/mem"))?;
    let mut put = |at: u64, bytes: &[u8]| {
        memory.seek(SeekFrom::Start(start + at))?;
        memory.write_all(bytes)
    };
    let (first, most) = match rng.below(5) {
        0 => (0, 512),
        1 => (PAGE, TABLE),
        2 => (0, PAGE + TABLE),
        3 => (0, length),
        _ => {
            let everything = (0..TABLE).flat_map(|_| rng.draw().to_ne_bytes());
            let everything: Vec<u8> = everything.take(TABLE as usize).collect();
            return put(0, &everything);
        }
    };
    for _ in 0..rng.between(1, 200) {
        let at = (first + rng.draw() % (most - first)) & !7;
        if at + 8 <= length {
            put(at, &word(&mut rng, is_mean).to_ne_bytes())?;
        }
    }
    Ok(())
}

fn word(rng: &mut Rng, is_mean: bool) -> u64 {
    let any = rng.draw();
    match rng.below(6) {
        0 if is_mean => 0,
        1 if is_mean => u64::MAX,
        2 if is_mean => any % 8,
        3 if is_mean => ((any % 4) << 32) | ((any >> 32) % 4),
        4 if is_mean => 1 << (any % 64),
        _ => any,
    }
}
