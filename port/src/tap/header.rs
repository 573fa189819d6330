//! `struct virtio_net_hdr` (linux/virtio_net.h), before each frame in both directions: what is left to do to it.
//!
//! Of those that arrive nothing has to be read: a length tells that a frame is of several segments, a checksum that it was left out.

use crate::Unfinished;

/// Its length.
pub(super) const HEADER_BYTES: usize = 10;
/// Where a TCP header has its checksum.
const CHECKSUM_AT: u16 = 16;

/// The checksum field holds the sum of the pseudo-header alone.
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// Of a frame to which nothing is left to do.
pub(super) const FINISHED: [u8; HEADER_BYTES] = [0; HEADER_BYTES];

/// Of a frame that the kernel finishes.
pub(super) fn unfinished(left: &Unfinished) -> [u8; HEADER_BYTES] {
    let kind = if left.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 };
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&[NEEDS_CSUM, kind]);
    let words = [left.payload_at, left.segment_bytes.get(), left.tcp_at, CHECKSUM_AT];
    for (bytes, word) in header[2..].chunks_exact_mut(2).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn a_packet_to_be_cut_says_of_which_kind_it_is_and_where_its_parts_are() {
        for (is_v6, kind) in [(false, 1), (true, 4)] {
            let segment_bytes = NonZeroU16::new(1460).unwrap();
            let left = Unfinished { is_v6, tcp_at: 34, payload_at: 54, segment_bytes };
            let header = unfinished(&left);
            let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            assert_eq!(header[..2], [1, kind]);
            assert_eq!([word(2), word(4), word(6), word(8)], [54, 1460, 34, 16]);
        }
    }
}
