//! The card: TCP stack, MQTT core and distribution.

pub mod attach;
pub mod card;
pub mod mqtt;
pub mod stack;
