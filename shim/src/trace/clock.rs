//! The time of day as the program's time zone has it, and whether the program has several threads.

use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use rustix::time::ClockId;

use super::line::{Line, put};

/// Seconds east of Greenwich when the trace began. libc finds this out with files and allocations, so it is not asked again.
static OFFSET: AtomicI64 = AtomicI64::new(0);
/// glibc's own note that a process never had a second thread. Null before glibc 2.32.
static SINGLE: AtomicPtr<i8> = AtomicPtr::new(std::ptr::null_mut());

/// Asks libc, once, where it may allocate.
pub(super) fn prepare() {
    let now = rustix::time::clock_gettime(ClockId::Realtime).tv_sec;
    let mut local = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both point to live values of the right type.
    let known = unsafe { libc::localtime_r(&raw const now, local.as_mut_ptr()) };
    if !known.is_null() {
        // SAFETY: zeroed, which is a valid `tm`, and written by libc since.
        let local = unsafe { local.assume_init() };
        OFFSET.store(local.tm_gmtoff, Ordering::Relaxed);
    }
    let name = c"__libc_single_threaded";
    // SAFETY: the name ends with NUL, and RTLD_DEFAULT is valid everywhere.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    SINGLE.store(address.cast(), Ordering::Relaxed);
}

/// Whether the process is known to have had more than one thread.
pub(super) fn has_threads() -> bool {
    let address = SINGLE.load(Ordering::Relaxed);
    // SAFETY: null, or glibc's variable of this name, a char that it changes only while there is one thread.
    !address.is_null() && unsafe { address.read_volatile() } == 0
}

/// Writes hours, minutes, seconds and microseconds.
pub(super) fn now(line: &mut Line) {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let second = (now.tv_sec + OFFSET.load(Ordering::Relaxed)).rem_euclid(24 * 60 * 60);
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    put!(line, "{hours:02}:{minutes:02}:{seconds:02}.{:06} ", now.tv_nsec / 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_has_microseconds() {
        prepare();
        let mut line = Box::new(Line::new());
        now(&mut line);
        let text = String::from_utf8(line.as_bytes().to_vec()).unwrap();
        let shape: String =
            text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "99:99:99.999999 ");
    }
}
