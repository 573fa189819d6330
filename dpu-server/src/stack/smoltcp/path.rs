//! What routers say of packets that are too long for the way: ICMP "fragmentation needed" (RFC 1191) and ICMPv6 "packet too big"
//! (RFC 8201).
//!
//! Anybody can write such a packet. It is believed of a connection that there is, if it quotes a byte that is on its way to the
//! client and not acknowledged (RFC 5927 §4.1), and never below what every way carries. What is believed holds for that connection,
//! for its life.
//!
use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{
    Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, IpProtocol, Ipv4Packet, Ipv6Packet,
    TcpSeqNumber as Number,
};

use super::guard::distance;
use super::segment::Flow;
use super::tcp::Tcp;

/// No way over IPv4 that anybody uses carries less; Linux' `min_pmtu`. RFC 791 would allow 68.
const IPV4_MTU_MIN: usize = 552;
/// RFC 8200 §5.
const IPV6_MTU_MIN: usize = 1280;
/// What to try where a router does not say what it carries (RFC 1191 §7.1), above the least.
const PLATEAUS: [usize; 4] = [1492, 1280, 1006, 576];
/// Of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Bytes of the segment that a router quotes at least (RFC 792): ports and sequence number.
const QUOTED_BYTES: usize = 8;
/// In the code of ICMP "destination unreachable".
const FRAGMENTATION_NEEDED: u8 = 4;

/// A packet of ours was too long for somebody.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooBig {
    pub(super) flow: Flow,
    /// Of its first byte.
    pub(super) sequence: Number,
    /// What the way carries, in bytes of an IP packet.
    pub(super) mtu: usize,
}

impl TooBig {
    /// Bytes of a segment, without its header, that fit into such a packet.
    fn segment_bytes(&self) -> usize {
        let ip_bytes = if self.flow.local.is_ipv4() { 20 } else { 40 };
        self.mtu - ip_bytes - TCP_BYTES
    }
}

impl Tcp {
    /// Sends shorter segments from here on, if what a router told is believed. What was lost is sent again when its time comes.
    pub(super) fn narrow(&mut self, told: &TooBig) {
        let Some(id) = self.flows.find(&told.flow, &self.connections) else { return };
        let socket = &mut self.connections[id as usize].socket;
        let ahead = distance(socket.send_unacknowledged(), told.sequence);
        // Of what is in the buffer some may not have been sent yet, but nothing else can have been.
        if usize::try_from(ahead).is_ok_and(|ahead| ahead < socket.send_queue()) {
            socket.limit_mss(told.segment_bytes());
        }
    }
}

/// What a packet says, if it says that.
pub(super) fn too_big(packet: &[u8]) -> Option<TooBig> {
    match packet.first()? >> 4 {
        4 => by_icmp(packet),
        _ => by_icmpv6(packet),
    }
}

fn by_icmp(packet: &[u8]) -> Option<TooBig> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmp {
        return None;
    }
    let icmp = Icmpv4Packet::new_checked(ip.payload()).ok()?;
    let is_too_big =
        icmp.msg_type() == Icmpv4Message::DstUnreachable && icmp.msg_code() == FRAGMENTATION_NEEDED;
    if !is_too_big || !icmp.verify_checksum() {
        return None;
    }
    let told = usize::from(u16::from_be_bytes(number(ip.payload(), 6)?));
    // A quote is shorter than it says, so nothing is checked beyond what is there.
    let quote = ip.payload().get(8..)?;
    let header_bytes = usize::from(quote.first()? & 15) * 4;
    let segment = quote.get(header_bytes..header_bytes + QUOTED_BYTES)?;
    if header_bytes < 20 || quote[0] >> 4 != 4 || quote[9] != u8::from(IpProtocol::Tcp) {
        return None;
    }
    let quoted = usize::from(u16::from_be_bytes(number(quote, 2)?));
    let mtu = if told == 0 { plateau_below(quoted) } else { told };
    let [from, to] = [12, 16].map(|at| number::<4>(quote, at));
    let flow = flow(IpAddr::from(from?), IpAddr::from(to?), segment)?;
    // Less than every way carries is no news of a way.
    (mtu >= 68).then_some(TooBig { flow, sequence: sequence(segment)?, mtu: mtu.max(IPV4_MTU_MIN) })
}

fn by_icmpv6(packet: &[u8]) -> Option<TooBig> {
    let ip = Ipv6Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmpv6 {
        return None;
    }
    let icmp = Icmpv6Packet::new_checked(ip.payload()).ok()?;
    let is_too_big = icmp.msg_type() == Icmpv6Message::PktTooBig;
    if !is_too_big || !icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()) {
        return None;
    }
    let mtu = u32::from_be_bytes(number(ip.payload(), 4)?) as usize;
    let quote = ip.payload().get(8..)?;
    let segment = quote.get(40..40 + QUOTED_BYTES)?;
    if quote[0] >> 4 != 6 || quote[6] != u8::from(IpProtocol::Tcp) {
        return None;
    }
    let [from, to] = [8, 24].map(|at| number::<16>(quote, at));
    let flow = flow(IpAddr::from(from?), IpAddr::from(to?), segment)?;
    // RFC 8201 §4: less is discarded.
    (mtu >= IPV6_MTU_MIN).then_some(TooBig { flow, sequence: sequence(segment)?, mtu })
}

/// The connection whose segment, sent by us, is quoted.
fn flow(from: IpAddr, to: IpAddr, segment: &[u8]) -> Option<Flow> {
    let [source, target] = [0, 2].map(|at| number(segment, at).map(u16::from_be_bytes));
    Some(Flow { local: SocketAddr::new(from, source?), remote: SocketAddr::new(to, target?) })
}

fn sequence(segment: &[u8]) -> Option<Number> {
    Some(Number(i32::from_be_bytes(number(segment, 4)?)))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn plateau_below(mtu: usize) -> usize {
    PLATEAUS.into_iter().find(|plateau| *plateau < mtu).unwrap_or(IPV4_MTU_MIN)
}
