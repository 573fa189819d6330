//! Control Packets for tests, written out by hand so that they do not depend on the code under test.

/// A fixed header and a body.
pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut length = body.len();
    while length >= 0x80 {
        out.push((length % 0x80) as u8 | 0x80);
        length /= 0x80;
    }
    out.push(length as u8);
    out.extend(body);
    out
}

pub(super) fn string(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u16).to_be_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

/// A CONNECT to be adapted field by field.
#[derive(Clone, Copy)]
pub(super) struct ConnectPacket<'a> {
    pub(super) level: u8,
    pub(super) id: &'a str,
    pub(super) is_clean: bool,
    pub(super) keep_alive_s: u16,
    pub(super) properties: &'a [u8],
}

impl ConnectPacket<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut body = string(if self.level == 3 { "MQIsdp" } else { "MQTT" });
        body.extend([self.level, u8::from(self.is_clean) << 1]);
        body.extend(self.keep_alive_s.to_be_bytes());
        if self.level == 5 {
            body.push(self.properties.len() as u8);
            body.extend(self.properties);
        }
        body.extend(string(self.id));
        packet(0x10, &body)
    }
}

pub(super) fn v311(id: &str) -> ConnectPacket<'_> {
    ConnectPacket { level: 4, id, is_clean: true, keep_alive_s: 0, properties: &[] }
}

pub(super) fn v5(id: &str) -> ConnectPacket<'_> {
    ConnectPacket { level: 5, ..v311(id) }
}

pub(super) fn persistent(id: &str) -> ConnectPacket<'_> {
    ConnectPacket { is_clean: false, ..v311(id) }
}

/// CONNACK with flags, code and, for version 5, properties.
pub(super) fn connack(level: u8, session_present: bool, code: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = vec![u8::from(session_present), code];
    if level == 5 {
        body.push(properties.len() as u8);
        body.extend(properties);
    }
    packet(0x20, &body)
}

pub(super) fn publish(topic: &str, payload: &str) -> Vec<u8> {
    packet(0x30, &[string(topic), payload.into()].concat())
}

pub(super) fn publish_retained(topic: &str, payload: &str) -> Vec<u8> {
    packet(0x31, &[string(topic), payload.into()].concat())
}

pub(super) fn publish_v5(topic: &str, properties: &[u8], payload: &str) -> Vec<u8> {
    let mut body = string(topic);
    body.push(properties.len() as u8);
    body.extend(properties);
    body.extend(payload.as_bytes());
    packet(0x30, &body)
}

/// Larger than what is read, though its payload is not.
pub(super) fn publish_with_long_properties(topic: &str, payload: &str) -> Vec<u8> {
    let property = [&[0x26][..], &string("key"), &string(&"x".repeat(50_000))].concat();
    let properties = [&property[..], &property].concat();
    let length = packet(0, &vec![0; properties.len()]);
    let length = &length[1..length.len() - properties.len()];
    packet(0x30, &[&string(topic)[..], length, &properties, payload.as_bytes()].concat())
}

pub(super) fn publish_qos1(topic: &str, packet_id: u16, payload: &str) -> Vec<u8> {
    let id = packet_id.to_be_bytes().to_vec();
    packet(0x32, &[string(topic), id, payload.into()].concat())
}

pub(super) fn publish_qos2(topic: &str, packet_id: u16, payload: &str) -> Vec<u8> {
    let id = packet_id.to_be_bytes().to_vec();
    packet(0x34, &[string(topic), id, payload.into()].concat())
}

/// PUBLISH with QoS 1 and properties.
pub(super) fn publish_qos1_v5(topic: &str, packet_id: u16, list: &[u8], payload: &str) -> Vec<u8> {
    let mut body = [string(topic), packet_id.to_be_bytes().to_vec()].concat();
    body.push(list.len() as u8);
    body.extend(list);
    body.extend(payload.as_bytes());
    packet(0x32, &body)
}

/// PUBACK, PUBREC or PUBCOMP: 0x40, 0x50, 0x70.
pub(super) fn acknowledge(first: u8, packet_id: u16) -> Vec<u8> {
    packet(first, &packet_id.to_be_bytes())
}

pub(super) fn puback(packet_id: u16) -> Vec<u8> {
    acknowledge(0x40, packet_id)
}

pub(super) fn pubrel(packet_id: u16) -> Vec<u8> {
    packet(0x62, &packet_id.to_be_bytes())
}

pub(super) fn subscribe(packet_id: u16, filters: &[&str]) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    for filter in filters {
        body.extend(string(filter));
        body.push(0);
    }
    packet(0x82, &body)
}

pub(super) fn subscribe_v5(
    packet_id: u16,
    properties: &[u8],
    filter: &str,
    options: u8,
) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(properties.len() as u8);
    body.extend(properties);
    body.extend(string(filter));
    body.push(options);
    packet(0x82, &body)
}

pub(super) fn suback(packet_id: u16, codes: &[u8]) -> Vec<u8> {
    packet(0x90, &[&packet_id.to_be_bytes()[..], codes].concat())
}

pub(super) fn suback_v5(packet_id: u16, codes: &[u8]) -> Vec<u8> {
    packet(0x90, &[&packet_id.to_be_bytes()[..], &[0], codes].concat())
}

pub(super) fn unsubscribe(packet_id: u16, filters: &[&str]) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    for filter in filters {
        body.extend(string(filter));
    }
    packet(0xA2, &body)
}

pub(super) fn unsuback(packet_id: u16) -> Vec<u8> {
    packet(0xB0, &packet_id.to_be_bytes())
}

pub(super) const PINGREQ: [u8; 2] = [0xC0, 0];
pub(super) const PINGRESP: [u8; 2] = [0xD0, 0];
pub(super) const DISCONNECT: [u8; 2] = [0xE0, 0];
