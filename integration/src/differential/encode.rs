//! Steps as packets. MQTT 3.1.1 §3, MQTT 5 §3.

use super::scenario::Post;
use crate::mqtt::{Message, Version, encode_publish, packet, string};

/// PINGREQ.
pub(super) const PINGREQ: [u8; 2] = [0xc0, 0];

/// SUBSCRIBE. Options MQTT 3 does not know are left out for it.
pub(super) fn subscribe(
    version: Version,
    id: u16,
    filters: &[(String, u8)],
    identifier: Option<u8>,
) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        let properties = identifier.map_or(Vec::new(), |identifier| vec![0x0b, identifier]);
        put_properties(&mut body, &properties);
    }
    for (filter, options) in filters {
        body.extend(string(filter));
        body.push(if version == Version::V5 { *options } else { options & 3 });
    }
    packet(0x82, &body)
}

/// UNSUBSCRIBE.
pub(super) fn unsubscribe(version: Version, id: u16, filters: &[String]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        body.push(0);
    }
    body.extend(filters.iter().flat_map(|filter| string(filter)));
    packet(0xa2, &body)
}

/// PUBLISH, as often as the post says.
pub(super) fn publish(
    version: Version,
    id: Option<u16>,
    client: usize,
    post: &Post,
) -> Vec<Vec<u8>> {
    let mut message = Message { id, payload: post.payload(client), ..post.message.clone() };
    if let Some((alias, has_topic)) = post.alias
        && version == Version::V5
    {
        message.properties.extend([0x23, 0, alias]);
        if !has_topic {
            message.topic.clear();
        }
    }
    let mut packets = vec![encode_publish(&message, version)];
    if post.is_repeated && message.qos > 0 {
        message.is_duplicate = true;
        packets.push(encode_publish(&message, version));
    }
    packets
}

/// DISCONNECT.
pub(super) fn disconnect(version: Version, reason: u8, expiry_s: Option<u32>) -> Vec<u8> {
    let mut body = Vec::new();
    if version == Version::V5 && (reason > 0 || expiry_s.is_some()) {
        body.push(reason);
        let properties =
            expiry_s.map_or(Vec::new(), |seconds| [&[0x11][..], &seconds.to_be_bytes()].concat());
        put_properties(&mut body, &properties);
    }
    packet(0xe0, &body)
}

fn put_properties(body: &mut Vec<u8>, properties: &[u8]) {
    body.push(u8::try_from(properties.len()).expect("one property is short"));
    body.extend(properties);
}
