//! smoltcp's clock runs five times as fast as ours.
//!
//! Its shortest retransmission time-out is a second, as RFC 6298 §2.4 wants it, and fixed. Linux has 200 ms, and a lost segment
//! must not cost a client on the same link a second. smoltcp takes its time from the caller: five of its seconds are one of
//! ours. So TIME-WAIT lasts 2 s instead of 10, a persist timer begins at 200 ms; what we set ourselves is stretched here.

use std::time::Duration;

use smoltcp::time;

/// Its seconds in one of ours.
pub(super) const RATE: u32 = 5;
/// How long an acknowledgement may wait for company (RFC 1122 §4.2.3.2: below half a second).
pub(super) const ACK_DELAY: Duration = Duration::from_millis(10);

/// Its instant, of ours since the stack began.
pub(super) fn instant(now: Duration) -> time::Instant {
    time::Instant::from_micros((now.as_micros() as i64).saturating_mul(i64::from(RATE)))
}

/// Its duration, of ours.
pub(super) fn dilate(duration: Duration) -> time::Duration {
    time::Duration::from_micros(duration.as_micros() as u64 * u64::from(RATE))
}

/// The first millisecond of ours at which its instant has come.
pub(super) fn millisecond(instant: time::Instant) -> u64 {
    (instant.total_micros().max(0) as u64).div_ceil(u64::from(RATE) * 1000)
}
