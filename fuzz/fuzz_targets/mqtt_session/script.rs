//! Bytes of the fuzzer as choices, and choices as packets.

use crate::wire::{PUBACK, PUBCOMP, PUBREC, PUBREL, Packet, Publish, Version};

/// Choices, until they run out; then zeros.
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub fn new(bytes: &'a [u8]) -> Script<'a> {
        Script(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub fn coin(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// Some bytes as they are.
    pub fn noise(&mut self) -> Vec<u8> {
        let count = self.below(24).min(self.0.len());
        let (noise, rest) = self.0.split_at(count);
        self.0 = rest;
        noise.to_vec()
    }

    /// One of the identifiers that either side begins with.
    fn id(&mut self) -> u16 {
        [1, 2, 3, 4, 65_532, 65_533, 65_534, 65_535][self.below(8)]
    }

    fn filter(&mut self) -> String {
        ["a", "b", "+", "#", "a/#", "$share/g/a"][self.below(6)].to_owned()
    }

    pub fn version(&mut self) -> Version {
        if self.coin() { Version::V5 } else { Version::V311 }
    }

    pub fn publish(&mut self, version: Version) -> Publish {
        let flags = self.byte();
        let qos = [0, 0, 0, 1, 1, 2, 0, 1][usize::from(flags & 7)];
        let is_v5 = version == Version::V5;
        let alias = (is_v5 && flags & 0x30 == 0x30).then(|| 1 + self.below(3) as u16);
        let topic = match self.below(8) {
            0 if alias.is_some() => "",
            1 | 2 => "b",
            3 => "a/b",
            _ => "a",
        };
        let length = if flags & 0x40 != 0 { 90 } else { self.below(4) };
        Publish {
            topic: topic.to_owned(),
            payload: vec![b'0' + self.byte() % 4; length],
            qos,
            is_dup: qos > 0 && flags & 0x88 == 0x88,
            is_retained: flags & 0x0F == 0x0F,
            id: if qos > 0 { self.id() } else { 0 },
            alias,
            user: (is_v5 && flags & 0x30 == 0x10).then(|| "u".to_owned()),
            subscription_id: None,
        }
    }

    /// What a client may say.
    pub fn client_packet(&mut self, version: Version) -> Packet {
        match self.below(16) {
            0 if self.below(4) == 0 => Packet::Connect {
                version,
                id: ["", "a", "b", "c"][self.below(4)].to_owned(),
                is_clean: self.coin(),
                receive_max: self.coin().then_some(2),
                is_kept: self.coin(),
            },
            1..=2 => Packet::Subscribe {
                id: self.id(),
                filter: self.filter(),
                options: [0, 1, 2, 4, 5, 1, 0, 1][self.below(8)],
                subscription_id: (self.below(4) == 0).then_some(7),
            },
            3 => Packet::Unsubscribe { id: self.id(), filter: self.filter() },
            4 => Packet::Ack([PUBACK, PUBREC, PUBREL, PUBCOMP][self.below(4)], self.id()),
            5 => Packet::Pingreq,
            6 => Packet::Disconnect,
            _ => Packet::Publish(self.publish(version)),
        }
    }

    /// What a broker may say.
    pub fn broker_packet(&mut self, version: Version) -> Packet {
        match self.below(24) {
            0 => Packet::Connack { is_present: self.coin(), code: self.byte() & 1 },
            1 => Packet::Suback(self.id(), [0, 1, 2, 0x80][self.below(4)]),
            2 => Packet::Unsuback(self.id()),
            3..=4 => Packet::Ack([PUBACK, PUBREC, PUBREL, PUBCOMP][self.below(4)], self.id()),
            5 => Packet::Pingresp,
            _ => Packet::Publish(self.publish(version)),
        }
    }
}
