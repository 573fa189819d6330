//! The card: TCP stack, MQTT core and distribution.

pub mod attach;
pub mod stack;
