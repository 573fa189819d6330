//! Limits that hold for every message, whatever its peer says.

/// The schema version this build speaks, and the oldest it still understands.
pub const VERSION_MAX: u16 = 1;
/// See [`VERSION_MAX`].
pub const VERSION_MIN: u16 = 1;

/// Largest socket option value that travels, in bytes. Linux's own largest here is `TCP_INFO` (about 250).
pub const OPTION_VALUE_BYTES_MAX: usize = 512;
/// Most socket options in one Bind, Listen or Connect.
pub const OPTIONS_MAX: usize = 64;
/// Longest text field (a program's name, a placeholder's file name), in bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Smallest `max_message_bytes` a Hello may announce.
pub const MESSAGE_BYTES_MIN: usize = 1024;
/// Largest `max_message_bytes` a Hello may announce.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// What a Data message needs beside its bytes. `max_message_bytes` less this is the most one Data message carries.
pub const DATA_OVERHEAD_BYTES: usize = 96;
/// Most bytes in one Data message on a channel with the largest messages.
pub const DATA_BYTES_MAX: usize = MESSAGE_BYTES_MAX - DATA_OVERHEAD_BYTES;
/// Seconds between heartbeats.
pub const HEARTBEAT_SECONDS: u64 = 1;
/// Seconds of silence after which the other side counts as gone.
pub const LEASE_SECONDS: u64 = 5;
