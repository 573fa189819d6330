//! Checksums that a kernel left to a network interface (CHECKSUM_PARTIAL, linux/skbuff.h): the field holds the sum of the pseudo-header alone.
//! A frame that is carried from one interface to another in user space has lost the note that says so, and its receiver would drop it.

use std::ops::Range;

const ETHERNET_BYTES: usize = 14;
const TYPE: Range<usize> = 12..14;
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
/// Where a TCP header has its checksum (RFC 9293 §3.1).
const FIELD: Range<usize> = 16..18;
const TCP_BYTES_MIN: usize = 20;

/// Where the addresses of an IP packet are, and where its TCP segment is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Segment {
    /// Its ports: from, to.
    pub ports: [u16; 2],
    addresses: Range<usize>,
    bytes: Range<usize>,
}

/// The TCP segment in a frame, if it carries one without VLAN tags, fragments and extension headers.
#[must_use]
pub fn segment(frame: &[u8]) -> Option<Segment> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    let half = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let (addresses, header_bytes, bytes) = match *frame.get(TYPE)?.first_chunk()? {
        IPV4 if *packet.get(9)? == TCP => (12..20, usize::from(packet[0] & 15) * 4, half(2)?),
        IPV6 if *packet.get(6)? == TCP => (8..40, 40, 40 + half(4)?),
        _ => return None,
    };
    let is_whole = header_bytes + TCP_BYTES_MIN <= bytes && bytes <= packet.len();
    let beyond = |range: Range<usize>| range.start + ETHERNET_BYTES..range.end + ETHERNET_BYTES;
    if !is_whole {
        return None;
    }
    let port = |at: usize| half(header_bytes + at).map(|port| port as u16);
    let (addresses, bytes) = (beyond(addresses), beyond(header_bytes..bytes));
    Some(Segment { ports: [port(0)?, port(2)?], addresses, bytes })
}

/// Does what the interface would have done, where something is left to do.
pub fn complete(frame: &mut [u8], segment: &Segment) {
    let bytes = segment.bytes.len() as u32;
    let pseudo = fold(sum(&frame[segment.addresses.clone()]) + u32::from(TCP) + bytes);
    let tcp = &mut frame[segment.bytes.clone()];
    if tcp[FIELD] == pseudo.to_be_bytes() {
        // The field is the pseudo-header's part of the sum.
        let whole = !fold(sum(tcp));
        tcp[FIELD].copy_from_slice(&whole.to_be_bytes());
    }
}

/// RFC 1071.
fn sum(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>() + last
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 10.0.0.1 to 10.0.0.2, seven bytes of payload; the field is the pseudo-header's sum.
    fn partial() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(IPV4);
        frame.extend([0x45, 0, 0, 47, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x07, 0x5b, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.extend(b"payload");
        let pseudo = fold(0x0a00 + 1 + 0x0a00 + 2 + 6 + 27);
        frame[14 + 20 + 16..][..2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    /// Whether a receiver would take it (RFC 9293 §3.1).
    fn is_right(frame: &[u8], at: &Segment) -> bool {
        let pseudo = sum(&frame[at.addresses.clone()]) + u32::from(TCP) + at.bytes.len() as u32;
        fold(pseudo + sum(&frame[at.bytes.clone()])) == 0xffff
    }

    #[test]
    fn a_checksum_that_was_left_out_is_put_in_and_stays() {
        let mut frame = partial();
        let at = segment(&frame).unwrap();
        assert_eq!(at.ports, [1883, 40_000]);
        assert!(!is_right(&frame, &at));
        complete(&mut frame, &at);
        assert!(is_right(&frame, &at));
        let before = frame.clone();
        complete(&mut frame, &at);
        assert_eq!(frame, before);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut frame = partial();
        let at = segment(&frame).unwrap();
        complete(&mut frame, &at);
        frame[14 + 20 + 16] ^= 0x55;
        let before = frame.clone();
        complete(&mut frame, &at);
        assert_eq!(frame, before);
    }

    #[test]
    fn what_is_no_segment_of_tcp_is_told() {
        let mut arp = vec![0; 42];
        arp[TYPE].copy_from_slice(&[8, 6]);
        assert_eq!(segment(&arp), None);
        for length in 0..partial().len() {
            assert_eq!(segment(&partial()[..length]), None, "{length}");
        }
    }
}
