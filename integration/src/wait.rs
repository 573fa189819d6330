//! Waiting for something to become true, never for time to pass.

use std::time::{Duration, Instant};

/// How long anything may take here unless a test says otherwise: far longer than it ever needs.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until there is something.
///
/// # Panics
/// After [`PATIENCE`], naming `what` was awaited.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

/// Looks until there is something, for at most `patience`.
///
/// # Panics
/// When the time is up, naming `what` was awaited.
#[track_caller]
pub fn until_within<T>(patience: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    match poll(patience, look) {
        Some(found) => found,
        None => panic!("{patience:?} were not enough for: {what}"),
    }
}

/// Looks until there is something, or `None` when the time is up.
pub fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        // The time is read first: a look after the deadline still counts.
        let is_over = Instant::now() >= deadline;
        if let Some(found) = look() {
            return Some(found);
        }
        if is_over {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
