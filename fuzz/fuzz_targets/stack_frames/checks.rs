//! What every frame of the stack must be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dpu_server::stack::smoltcp::harness::{ADDRESSES, FRAME_BYTES_MAX, MAC};

use crate::frames::{ICMP, ICMPV6, TCP, pseudo_header, sum};

/// A segment the stack sent.
pub struct Heard<'a> {
    pub to: IpAddr,
    pub port: u16,
    pub sequence: u32,
    pub acknowledged: u32,
    pub is_syn: bool,
    pub payload: &'a [u8],
    /// The IP packet it came in.
    pub packet: &'a [u8],
}

/// The segment in a frame, if there is one. All else in it is right, or this panics.
pub fn check(frame: &[u8]) -> Option<Heard<'_>> {
    assert!(frame.len() >= 14 && frame.len() <= FRAME_BYTES_MAX, "{} bytes", frame.len());
    assert_eq!(frame[6..12], MAC);
    let packet = &frame[14..];
    match [frame[12], frame[13]] {
        [0x08, 0x06] => {
            assert_eq!(packet.len(), 28);
            None
        }
        [0x08, 0x00] => ipv4(packet),
        [0x86, 0xdd] => ipv6(packet),
        other => panic!("frames of type {other:?} are none of ours"),
    }
}

fn ipv4(packet: &[u8]) -> Option<Heard<'_>> {
    assert_eq!((packet[0], word(packet, 2)), (0x45, packet.len()));
    assert_eq!(sum(&[&packet[..20]]), 0xffff, "the header's checksum");
    let [from, to] = [12, 16].map(|at| {
        let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap();
        IpAddr::from(Ipv4Addr::from(octets))
    });
    assert!(is_own(from), "{from}");
    let payload = &packet[20..];
    match packet[9] {
        TCP => Some(tcp(packet, from, to, payload)),
        ICMP => {
            assert_eq!(sum(&[payload]), 0xffff, "ICMP's checksum");
            None
        }
        other => panic!("protocol {other} is none of ours"),
    }
}

fn ipv6(packet: &[u8]) -> Option<Heard<'_>> {
    assert_eq!((packet[0] >> 4, word(packet, 4)), (6, packet.len() - 40));
    let [from, to] = [8, 24].map(|at| {
        let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap();
        IpAddr::from(Ipv6Addr::from(octets))
    });
    assert!(is_own(from), "{from}");
    let payload = &packet[40..];
    match packet[6] {
        TCP => Some(tcp(packet, from, to, payload)),
        ICMPV6 => {
            let before = pseudo_header(from, to, ICMPV6, payload.len());
            assert_eq!(sum(&[&before, payload]), 0xffff, "ICMPv6's checksum");
            None
        }
        other => panic!("protocol {other} is none of ours"),
    }
}

fn tcp<'a>(packet: &'a [u8], from: IpAddr, to: IpAddr, segment: &'a [u8]) -> Heard<'a> {
    let before = pseudo_header(from, to, TCP, segment.len());
    assert_eq!(sum(&[&before, segment]), 0xffff, "TCP's checksum");
    let header_bytes = usize::from(segment[12] >> 4) * 4;
    assert!(header_bytes >= 20 && header_bytes <= segment.len());
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    Heard {
        to,
        port: word(segment, 2) as u16,
        sequence: number(4),
        acknowledged: number(8),
        is_syn: segment[13] & 2 != 0,
        payload: &segment[header_bytes..],
        packet,
    }
}

fn is_own(address: IpAddr) -> bool {
    ADDRESSES.iter().any(|own| own.split('/').next().unwrap().parse() == Ok(address))
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
}
