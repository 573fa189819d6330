//! Segments whose checksum is left to a device that there is none, and segments that were spoilt.

use mqttshim_port::Checksums;
use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpPacket, checksum};

use super::hand::{frame, said};
use crate::stack::smoltcp::segment::{Arrival, arrival};

const TCP_AT: usize = 20;

fn packet() -> Vec<u8> {
    let from = ([10, 0, 0, 7], 40_000).into();
    frame(from, 8000, said("A", 1, 2, b"hello, card"))[14..].to_vec()
}

/// As Linux leaves it where a device is to do the rest.
fn with_partial_checksum() -> Vec<u8> {
    let mut packet = packet();
    let ip = Ipv4Packet::new_checked(&packet[..]).unwrap();
    let ends = (ip.src_addr().into(), ip.dst_addr().into());
    let bytes = (packet.len() - TCP_AT) as u32;
    let sum = checksum::pseudo_header(&ends.0, &ends.1, IpProtocol::Tcp, bytes);
    TcpPacket::new_unchecked(&mut packet[TCP_AT..]).set_checksum(sum);
    packet
}

fn is_taken(packet: &[u8], checksums: Checksums) -> bool {
    matches!(arrival(packet, checksums), Arrival::Segment(_))
}

#[test]
fn a_checksum_left_to_a_device_is_believed_only_where_that_may_be() {
    let packet = with_partial_checksum();
    assert!(!is_taken(&packet, Checksums::Unknown));
    assert!(is_taken(&packet, Checksums::MayBePartial));
}

#[test]
fn a_spoilt_segment_is_dropped_wherever_its_checksum_is_whole() {
    let whole = packet();
    let mut spoilt = whole.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    for checksums in [Checksums::Unknown, Checksums::MayBePartial] {
        assert!(is_taken(&whole, checksums), "{checksums:?}");
        assert!(!is_taken(&spoilt, checksums), "{checksums:?}");
    }
}
