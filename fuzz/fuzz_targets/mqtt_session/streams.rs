//! What went in and what came out, compared.

/// Bytes of the packet at the front, fixed header included; `None`: it is not whole, or no packet.
pub fn packet_bytes(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, &byte) in bytes.get(1..)?.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let total = 2 + index + length;
            return (bytes.len() >= total).then_some(total);
        }
    }
    None
}

const PINGREQ: [u8; 2] = [0xC0, 0];
const PINGRESP: [u8; 2] = [0xD0, 0];

/// What the card took out of a client's stream, and put into it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Difference {
    pub publishes: u64,
    pub acknowledgements: u64,
    pub pings: u64,
}

/// Compares what a client sent with what the broker got. The place of a PINGREQ among whole packets is anywhere.
///
/// # Panics
/// If they differ in anything but what the card may take out or put in.
pub fn compare_up(sent: &[u8], got: &[u8], difference: &mut Difference) {
    let is_compared = |packet: &&[u8]| *packet != PINGREQ;
    let pings = |stream| packets(stream).filter(|packet| *packet == PINGREQ).count() as u64;
    let differ = || panic!("sent {}\n got {}", sent.escape_ascii(), got.escape_ascii());
    let mut got_left = packets(got).filter(is_compared).peekable();
    for packet in packets(sent).filter(is_compared) {
        if got_left.next_if(|got| *got == packet || is_renumbered(packet, got)).is_some() {
            continue;
        }
        match packet[0] >> 4 {
            3 => difference.publishes += 1,
            4 => difference.acknowledgements += 1,
            _ => differ(),
        }
    }
    if got_left.next().is_some() || rest(sent) != rest(got) || pings(got) < pings(sent) {
        differ();
    }
    difference.pings += pings(got) - pings(sent);
}

/// What is behind the last whole packet.
fn rest(stream: &[u8]) -> &[u8] {
    &stream[packets(stream).map(<[u8]>::len).sum()..]
}

/// An acknowledgement whose Packet Identifier is another one.
fn is_renumbered(packet: &[u8], got: &[u8]) -> bool {
    packet.len() >= 4
        && packet.len() == got.len()
        && matches!(packet[0] >> 4, 4 | 5 | 7)
        && packet[1] < 0x80
        && packet[..2] == got[..2]
        && packet[4..] == got[4..]
}

/// Whole packets of a stream.
pub fn packets(mut stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (packet, rest) = stream.split_at(packet_bytes(stream)?);
        stream = rest;
        Some(packet)
    })
}

/// Compares what the broker sent with what its client got, but for messages and acknowledgements of QoS 1, whose order and identifiers may be
/// the card's. Returns how many answers to PINGREQs the client did not get.
///
/// # Panics
/// If they differ.
pub fn compare_down(sent: &[u8], got: &[u8]) -> u64 {
    let is_compared = |packet: &&[u8]| !matches!(packet[0] >> 4, 3 | 4 | 6);
    let mut got_left = packets(got).filter(is_compared).peekable();
    let mut swallowed = 0;
    for packet in packets(sent).filter(is_compared) {
        if got_left.next_if(|it| *it == packet).is_none() {
            assert_eq!(
                packet,
                PINGRESP,
                "sent {}\n got {}",
                sent.escape_ascii(),
                got.escape_ascii()
            );
            swallowed += 1;
        }
    }
    assert_eq!(got_left.next(), None, "sent {}\n got {}", sent.escape_ascii(), got.escape_ascii());
    swallowed
}
