//! Bytes that claim to be a message between host and card: decode never panics, and whatever it accepts can be encoded
//! and means the same afterwards.
//!
//! Each input is tried at an address that is a multiple of eight and at one that is not, because a message starts anywhere
//! in a buffer. `schema/golden/` holds good seeds:
//! `cargo +nightly fuzz run channel_message corpus/channel_message ../schema/golden -- -max_total_time=60`

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqttshim_schema::{decode, encode};

fuzz_target!(|bytes: &[u8]| {
    for shift in [0, 1 + bytes.len() % 7] {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(bytes);
        decode_and_back(&shifted[shift..]);
    }
});

fn decode_and_back(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    let mut again = Vec::new();
    encode(&message, &mut again).expect("what decode accepts, encode does");
    assert_eq!(decode(&again), Ok(message));
}
