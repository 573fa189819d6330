//! An MQTT client by hand: MQTT 3.1, 3.1.1 and 5 over a blocking socket, with every byte within reach.
//!
//! Enough of the protocol to be a guest at any broker, and open enough to misbehave: a test can write raw bytes, withhold
//! acknowledgements, or stop reading. One call completes one exchange; what else arrives meanwhile waits in order.

mod client;
mod packet;

pub use client::Client;
pub use packet::{Login, Message, Packet, Version, encode_publish, packet, string};
