//! The few MQTT 3.1.1 packets a load generator needs, by hand.
//!
//! Encodes CONNECT, SUBSCRIBE, PUBLISH, PUBACK, PINGREQ, DISCONNECT; decodes CONNACK, SUBACK, PUBLISH, PUBACK and
//! PINGRESP (MQTT 3.1.1 §3). A client library would put its own costs into the figures.
//!
//! ```text
//! bytes of one connection ──► Decoder::feed ──► Packet<'_> …        (a split packet waits in the decoder)
//! ```
//!
//! No sessions, no QoS 2, no retransmission. A packet is at most [`PACKET_BYTES_MAX`] bytes.

/// Largest packet the decoder accepts, in bytes of Remaining Length.
pub(crate) const PACKET_BYTES_MAX: usize = 16 << 20;

/// A packet from the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Packet<'a> {
    /// Answer to CONNECT; 0 is success.
    Connack(u8),
    /// Answer to SUBSCRIBE: the first return code, 0x80 is failure.
    Suback(u8),
    /// An application message.
    Publish {
        /// Quality of service, 0 or 1.
        qos: u8,
        /// The server says it may have sent this before.
        dup: bool,
        /// Packet Identifier, 0 at QoS 0.
        id: u16,
        /// The application message.
        payload: &'a [u8],
    },
    /// Answer to a QoS 1 PUBLISH of ours.
    Puback(u16),
    /// Answer to PINGREQ.
    Pingresp,
}

/// Why a byte stream is not what an MQTT server sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// Remaining Length has a fifth byte or is beyond [`PACKET_BYTES_MAX`].
    #[error("Remaining Length is malformed or beyond {PACKET_BYTES_MAX} bytes")]
    Length,
    /// A packet type a server does not send to us.
    #[error("unexpected packet, first byte {0:#04x}")]
    Unexpected(u8),
    /// The packet is shorter than its own fields.
    #[error("packet with first byte {0:#04x} is cut short")]
    Short(u8),
}

/// Cuts one connection's byte stream into packets.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The start of a packet whose end has not arrived. Empty nearly always.
    partial: Vec<u8>,
}

impl Decoder {
    /// Decodes everything complete in `bytes`, after what was left over before.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Packet<'_>),
    ) -> Result<(), DecodeError> {
        if self.partial.is_empty() {
            let used = decode_all(bytes, sink)?;
            self.partial.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.partial.extend_from_slice(bytes);
        let whole = std::mem::take(&mut self.partial);
        let used = decode_all(&whole, sink)?;
        self.partial = whole;
        self.partial.drain(..used);
        Ok(())
    }
}

/// Decodes whole packets from the front of `bytes`; returns how many bytes they took.
fn decode_all(bytes: &[u8], sink: &mut dyn FnMut(Packet<'_>)) -> Result<usize, DecodeError> {
    let mut used = 0;
    while let Some((body_at, body_bytes)) = fixed_header(&bytes[used..])? {
        let end = used + body_at + body_bytes;
        if end > bytes.len() {
            break;
        }
        sink(decode_packet(bytes[used], &bytes[used + body_at..end])?);
        used = end;
    }
    Ok(used)
}

/// Where the body starts and how long it is, or `None` while the length is incomplete (MQTT 3.1.1 §2.2.3).
fn fixed_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, DecodeError> {
    let mut length = 0_usize;
    for index in 0..4 {
        let Some(&byte) = bytes.get(1 + index) else { return Ok(None) };
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            if length > PACKET_BYTES_MAX {
                return Err(DecodeError::Length);
            }
            return Ok(Some((2 + index, length)));
        }
    }
    Err(DecodeError::Length)
}

/// How long the packet at the front of `bytes` is, or `None` while it is incomplete.
pub(crate) fn whole_packet(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let length = fixed_header(bytes)?.map(|(body_at, body_bytes)| body_at + body_bytes);
    Ok(length.filter(|&length| length <= bytes.len()))
}

/// The PUBACK that a whole QoS 1 PUBLISH asks for; `None` at QoS 0.
pub(crate) fn puback_for(publish: &[u8]) -> Option<[u8; 4]> {
    let (body_at, _) = fixed_header(publish).ok()??;
    match decode_publish(publish[0], &publish[body_at..])? {
        Packet::Publish { qos: 1, id, .. } => Some(puback(id)),
        _ => None,
    }
}

fn decode_packet(first: u8, body: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let short = DecodeError::Short(first);
    match first >> 4 {
        2 => Ok(Packet::Connack(*body.get(1).ok_or(short)?)),
        3 => decode_publish(first, body).ok_or(short),
        4 => Ok(Packet::Puback(be16(body, 0).ok_or(short)?)),
        9 => Ok(Packet::Suback(*body.get(2).ok_or(short)?)),
        13 => Ok(Packet::Pingresp),
        _ => Err(DecodeError::Unexpected(first)),
    }
}

fn decode_publish(first: u8, body: &[u8]) -> Option<Packet<'_>> {
    let qos = (first >> 1) & 3;
    let mut at = 2 + usize::from(be16(body, 0)?);
    let mut id = 0;
    if qos > 0 {
        id = be16(body, at)?;
        at += 2;
    }
    Some(Packet::Publish { qos, dup: first & 0x08 != 0, id, payload: body.get(at..)? })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// What every client's CONNECT says besides its name.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// Keep Alive, in seconds; 0: none.
    pub(crate) keepalive_s: u16,
    /// User Name and Password, where a server wants some.
    pub(crate) user: Option<(String, String)>,
}

/// CONNECT with a clean session.
pub(crate) fn connect(client_id: &str, greeting: &Greeting) -> Vec<u8> {
    let mut body = Vec::with_capacity(12 + client_id.len());
    put_text(&mut body, "MQTT");
    let credentials = if greeting.user.is_some() { 0xc0 } else { 0 };
    body.extend_from_slice(&[4, 0x02 | credentials]);
    body.extend_from_slice(&greeting.keepalive_s.to_be_bytes());
    put_text(&mut body, client_id);
    if let Some((name, password)) = &greeting.user {
        put_text(&mut body, name);
        put_text(&mut body, password);
    }
    packet(0x10, &body)
}

/// SUBSCRIBE to one Topic Filter.
pub(crate) fn subscribe(filter: &str, qos: u8) -> Vec<u8> {
    let mut body = vec![0, 1];
    put_text(&mut body, filter);
    body.push(qos);
    packet(0x82, &body)
}

/// PUBLISH at QoS 0 (`id` 0) or 1.
pub(crate) fn publish(topic: &str, qos: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(4 + topic.len() + payload.len());
    put_text(&mut body, topic);
    if qos > 0 {
        body.extend_from_slice(&id.to_be_bytes());
    }
    body.extend_from_slice(payload);
    packet(0x30 | (qos << 1), &body)
}

/// PUBACK.
pub(crate) fn puback(id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [0x40, 2, high, low]
}

/// PINGREQ.
pub(crate) const PINGREQ: [u8; 2] = [0xc0, 0];

/// DISCONNECT.
pub(crate) const DISCONNECT: [u8; 2] = [0xe0, 0];

/// The Packet Identifier of the `sequence`-th QoS 1 PUBLISH: never 0 ([MQTT-2.3.1-1]).
pub(crate) fn packet_id(sequence: u64) -> u16 {
    u16::try_from(sequence % 65_535 + 1).expect("a remainder of 65,535 plus one fits")
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    let length =
        u16::try_from(text.len()).expect("what we write is short, and the options are checked");
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(text.as_bytes());
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() <= PACKET_BYTES_MAX, "the payload option is bounded below this");
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.push(first);
    let mut rest = body.len();
    loop {
        let low = u8::try_from(rest & 0x7f).expect("seven bits");
        rest >>= 7;
        if rest == 0 {
            bytes.push(low);
            break;
        }
        bytes.push(low | 0x80);
    }
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(decoder: &mut Decoder, bytes: &[u8]) -> Vec<String> {
        let mut seen = Vec::new();
        decoder.feed(bytes, &mut |packet| seen.push(format!("{packet:?}"))).unwrap();
        seen
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_packets() {
        let mut stream = vec![0x20, 2, 0, 0, 0x90, 3, 0, 1, 1];
        stream.extend(publish("a/b", 0, 0, &[7; 200]));
        stream.extend(publish("a/b", 1, 9, b"x"));
        stream.extend([0x40, 2, 0, 5, 0xd0, 0]);
        let whole = all(&mut Decoder::default(), &stream);
        assert_eq!(whole.len(), 6);
        for cut in 0..stream.len() {
            let mut decoder = Decoder::default();
            let mut seen = all(&mut decoder, &stream[..cut]);
            seen.extend(all(&mut decoder, &stream[cut..]));
            assert_eq!(seen, whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_publish_is_decoded_as_it_was_encoded() {
        let mut count = 0;
        let bytes = publish("t", 1, 513, b"payload");
        let expected = Packet::Publish { qos: 1, dup: false, id: 513, payload: b"payload" };
        Decoder::default()
            .feed(&bytes, &mut |packet| {
                assert_eq!(packet, expected);
                count += 1;
            })
            .unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn connect_names_a_user_only_if_there_is_one() {
        let plain = Greeting { keepalive_s: 60, user: None };
        let head = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 0x02, 0, 60, 0, 1, b'c'];
        assert_eq!(connect("c", &plain), head);
        let named = Greeting { user: Some(("u".to_owned(), "p".to_owned())), ..plain };
        let bytes = connect("c", &named);
        assert_eq!((bytes[1], bytes[9]), (19, 0xc2));
        assert_eq!(bytes[15..], [0, 1, b'u', 0, 1, b'p']);
    }

    #[test]
    fn a_fifth_length_byte_is_malformed() {
        let bytes = [0x30, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Decoder::default().feed(&bytes, &mut |_| ()), Err(DecodeError::Length));
    }

    #[test]
    fn a_packet_shorter_than_its_fields_is_refused() {
        for bytes in [&[0x20, 1, 0][..], &[0x30, 2, 0, 9], &[0x32, 3, 0, 1, b'a'], &[0x40, 1, 0]] {
            let result = Decoder::default().feed(bytes, &mut |_| ());
            assert_eq!(result, Err(DecodeError::Short(bytes[0])), "{bytes:?}");
        }
    }

    #[test]
    fn packet_ids_wrap_and_are_never_zero() {
        assert_eq!(packet_id(0), 1);
        assert_eq!(packet_id(65_534), 65_535);
        assert_eq!(packet_id(65_535), 1);
    }
}
