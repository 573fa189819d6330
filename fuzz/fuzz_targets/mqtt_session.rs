//! Several clients and a broker that send each other anything: valid packets in any order, halves of packets, noise, acknowledgements
//! nobody asked for; that close, come back and take over. The core that stands between them never panics, and
//!
//! - the broker gets what the clients sent, byte for byte, minus the PUBLISHes the card distributed and the acknowledgements
//!   of its own, plus its PINGREQs, exactly as many as it counts;
//! - what is no message reaches a client as the broker sent it, minus answers to those PINGREQs;
//! - clients that behave are never sent a Packet Identifier that is in use, by a broker that behaves;
//! - what waits for a client is bounded, and nothing is left when all are gone.

#![no_main]

#[path = "mqtt_session/script.rs"]
mod script;
#[path = "mqtt_session/stage.rs"]
mod stage;
#[path = "mqtt_session/streams.rs"]
mod streams;
#[allow(dead_code, reason = "shared with the simulation, which uses all of it")]
#[path = "../../dpu-server/tests/simulation/wire.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut script = script::Script::new(input);
    let mut stage = stage::Stage::new(&mut script);
    while !script.is_over() {
        stage.play(&mut script);
    }
    stage.end();
});
