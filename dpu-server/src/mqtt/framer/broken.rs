//! Where a packet ends whose fixed header breaks the rules.
//!
//! Flags that are reserved, and a length that takes more bytes than it needs, are malformed [MQTT-2.1.3-1, MQTT-1.5.5-1]; a broker may
//! go on all the same, and then behind as many bytes as the length says. Of a length of five bytes nobody can say where it ends. The
//! type 0 is as bad: mosquitto 2.0 forgets such a byte if the next one is late, and takes that for a first one.

use super::State;

/// Bytes of the longest Remaining Length (MQTT 5 §1.5.5).
const LENGTH_BYTES_MAX: u32 = 4;

/// What has been read of a Remaining Length of any form.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Length {
    value: usize,
    /// Fewer than [`LENGTH_BYTES_MAX`].
    bytes: u32,
}

impl Length {
    /// Reads on, at most to its end: how many bytes that takes, and where the stream is behind them.
    pub(super) fn read(mut self, input: &[u8]) -> (usize, State) {
        for (index, &byte) in input.iter().enumerate() {
            self.value |= usize::from(byte & 0x7F) << (7 * self.bytes);
            self.bytes += 1;
            let state = match byte & 0x80 {
                0 if self.value == 0 => State::Header,
                0 => State::Stream(self.value),
                _ if self.bytes == LENGTH_BYTES_MAX => State::Raw,
                _ => continue,
            };
            return (index + 1, state);
        }
        (input.len(), State::Length(self))
    }
}

/// Where the stream is behind the first bytes of such a packet, which are no more than its fixed header.
pub(super) fn behind(header: &[u8]) -> State {
    match header {
        [] | [0..=0x0F, ..] => State::Raw,
        [_, length @ ..] => Length::default().read(length).1,
    }
}
