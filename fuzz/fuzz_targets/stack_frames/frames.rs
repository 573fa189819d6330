//! Frames made by hand, none of it by the stack's own means.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dpu_server::stack::smoltcp::harness::MAC;

pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const TCP: u8 = 6;
pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;

/// A TCP segment as its sender makes it.
pub struct Segment<'a> {
    pub ports: [u16; 2],
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub window: u16,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

/// What is added up and folded: 0 over bytes with a right checksum in them, complemented.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u64::from(*byte));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// RFC 9293 §3.1, RFC 8200 §8.1.
pub fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, bytes: usize) -> Vec<u8> {
    let mut it = [octets(from), octets(to)].concat();
    it.extend((bytes as u32).to_be_bytes());
    it.extend(u32::from(protocol).to_be_bytes());
    it
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl Segment<'_> {
    pub fn frame(&self, from: IpAddr, to: IpAddr) -> Vec<u8> {
        let mut options = self.options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut it = Vec::new();
        self.ports.iter().for_each(|port| it.extend(port.to_be_bytes()));
        it.extend(self.sequence.to_be_bytes());
        it.extend(self.acknowledged.to_be_bytes());
        it.push(((20 + options.len()) / 4 << 4) as u8);
        it.push(self.flags);
        it.extend(self.window.to_be_bytes());
        it.extend([0; 4]);
        it.extend(options);
        it.extend(self.payload);
        checksum(&mut it, 16, &pseudo_header(from, to, TCP, self.length()));
        packet(from, to, TCP, &it)
    }

    fn length(&self) -> usize {
        20 + self.options.len().next_multiple_of(4) + self.payload.len()
    }
}

fn checksum(bytes: &mut [u8], at: usize, before: &[u8]) {
    let sum = !sum(&[before, bytes]);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

pub fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (kind, mut it) = match from {
        IpAddr::V4(_) => {
            let length = (20 + payload.len()) as u16;
            let mut it = vec![0x45, 0];
            it.extend(length.to_be_bytes());
            it.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            (0x0800, it)
        }
        IpAddr::V6(_) => {
            let mut it = vec![0x60, 0, 0, 0];
            it.extend((payload.len() as u16).to_be_bytes());
            // Neighbour discovery wants a hop limit that no router has lowered.
            it.extend([protocol, 255]);
            (0x86dd, it)
        }
    };
    it.extend([octets(from), octets(to)].concat());
    if from.is_ipv4() {
        checksum(&mut it, 10, &[]);
    }
    it.extend(payload);
    ethernet(MAC, kind, &it)
}

pub fn ethernet(to: [u8; 6], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut it = [to, CLIENT_MAC].concat();
    it.extend(kind.to_be_bytes());
    it.extend(packet);
    it
}

pub fn arp(operation: u8, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut it = vec![0, 1, 8, 0, 6, 4, 0, operation];
    it.extend(CLIENT_MAC);
    it.extend(sender.octets());
    it.extend([0; 6]);
    it.extend(target.octets());
    ethernet([0xff; 6], 0x0806, &it)
}

/// An ICMP message of either version, with a right checksum.
pub fn icmp(from: IpAddr, to: IpAddr, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut it = vec![kind, code, 0, 0];
    it.extend(rest);
    let (protocol, before) = match from {
        IpAddr::V4(_) => (ICMP, Vec::new()),
        IpAddr::V6(_) => (ICMPV6, pseudo_header(from, to, ICMPV6, it.len())),
    };
    checksum(&mut it, 2, &before);
    packet(from, to, protocol, &it)
}

/// Neighbour solicitation or advertisement (135, 136).
pub fn discovery(kind: u8, from: Ipv6Addr, to: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut rest = vec![0; 4];
    rest.extend(target.octets());
    rest.extend([if kind == 135 { 1 } else { 2 }, 1]);
    rest.extend(CLIENT_MAC);
    icmp(from.into(), to.into(), kind, 0, &rest)
}
