//! What the demultiplexer must know of a TCP segment, and may change in it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use mqttshim_port::Checksums;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber as Number, checksum,
};

/// Names a connection: both ends, as they stand in its segments.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Flow {
    /// The card's end.
    pub(super) local: SocketAddr,
    /// The client's.
    pub(super) remote: SocketAddr,
}

/// A packet that arrived.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Arrival {
    /// A whole TCP segment with a right checksum.
    Segment(Segment),
    /// Something else that may be answered: ICMP, UDP.
    Other,
    /// Nothing to be answered: broken, cut, a fragment, from nobody or to many.
    Broken,
}

/// A TCP segment's header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Segment {
    pub(super) flow: Flow,
    pub(super) sequence: Number,
    pub(super) acknowledged: Option<Number>,
    /// As it stands there, unscaled.
    pub(super) window: u16,
    pub(super) payload_bytes: usize,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    /// Where in the packet it lies.
    at: Range<usize>,
}

impl Segment {
    /// Makes it say what it does not: a bare segment that probes, as one of a keep-alive does, one before what is expected. The
    /// connection answers it with an acknowledgement of what it has, at most one in a while: a challenge (RFC 5961 §5).
    pub(super) fn into_probe(
        self,
        packet: &mut [u8],
        expected: Number,
        acknowledged: Number,
    ) -> usize {
        let payload_at = self.at.end - self.payload_bytes;
        let mut tcp = TcpPacket::new_unchecked(&mut packet[self.at.start..payload_at]);
        tcp.set_syn(false);
        tcp.set_fin(false);
        tcp.set_rst(false);
        tcp.set_ack(true);
        tcp.set_seq_number(expected - 1);
        tcp.set_ack_number(acknowledged);
        tcp.options_mut().fill(1);
        shorten(packet, payload_at);
        payload_at
    }

    /// Replaces the acknowledgement.
    pub(super) fn acknowledge(&self, packet: &mut [u8], number: Number) {
        TcpPacket::new_unchecked(&mut packet[self.at.clone()]).set_ack_number(number);
    }

    /// Replaces the window.
    pub(super) fn offer(&self, packet: &mut [u8], window: u16) {
        TcpPacket::new_unchecked(&mut packet[self.at.clone()]).set_window_len(window);
    }
}

/// Writes into its header that a packet ends sooner.
fn shorten(packet: &mut [u8], length: usize) {
    if packet[0] >> 4 == 4 {
        let mut ip = Ipv4Packet::new_unchecked(packet);
        ip.set_total_len(length as u16);
        ip.fill_checksum();
    } else {
        let header = Ipv6Packet::<&[u8]>::new_unchecked(packet).header_len();
        Ipv6Packet::new_unchecked(packet).set_payload_len((length - header) as u16);
    }
}

/// Looks at an IP packet. `checksums`: what is known of its TCP checksum.
pub(super) fn arrival(packet: &[u8], checksums: Checksums) -> Arrival {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, checksums),
        Some(6) => ipv6(packet, checksums),
        _ => Arrival::Broken,
    }
}

fn ipv4(packet: &[u8], checksums: Checksums) -> Arrival {
    let Ok(ip) = Ipv4Packet::new_checked(packet) else { return Arrival::Broken };
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    let is_odd =
        from.is_unspecified() || from.is_broadcast() || from.is_multicast() || from.is_loopback();
    if ip.version() != 4 || is_odd || !ip.verify_checksum() {
        return Arrival::Broken;
    }
    if ip.more_frags() || ip.frag_offset() != 0 {
        return Arrival::Broken;
    }
    if ip.next_header() != IpProtocol::Tcp {
        return Arrival::Other;
    }
    let at = usize::from(ip.header_len())..usize::from(ip.total_len());
    tcp(packet, at, IpAddr::V4(from), IpAddr::V4(to), checksums)
}

fn ipv6(packet: &[u8], checksums: Checksums) -> Arrival {
    let Ok(ip) = Ipv6Packet::new_checked(packet) else { return Arrival::Broken };
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    if from.is_multicast() || from.is_loopback() {
        return Arrival::Broken;
    }
    if ip.next_header() != IpProtocol::Tcp {
        return Arrival::Other;
    }
    let at = ip.header_len()..ip.total_len();
    tcp(packet, at, IpAddr::V6(from), IpAddr::V6(to), checksums)
}

fn tcp(packet: &[u8], at: Range<usize>, from: IpAddr, to: IpAddr, checksums: Checksums) -> Arrival {
    let Ok(tcp) = TcpPacket::new_checked(&packet[at.clone()]) else { return Arrival::Broken };
    let is_addressed =
        tcp.src_port() != 0 && tcp.dst_port() != 0 && !from.is_unspecified() && !to.is_multicast();
    if !is_addressed || !is_right(&tcp, from.into(), to.into(), checksums) {
        return Arrival::Broken;
    }
    Arrival::Segment(Segment {
        flow: Flow {
            local: SocketAddr::new(to, tcp.dst_port()),
            remote: SocketAddr::new(from, tcp.src_port()),
        },
        sequence: tcp.seq_number(),
        acknowledged: tcp.ack().then(|| tcp.ack_number()),
        window: tcp.window_len(),
        payload_bytes: tcp.payload().len(),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        at,
    })
}

/// Whether a segment is as its sender made it, as far as can be known.
fn is_right(tcp: &TcpPacket<&[u8]>, from: IpAddress, to: IpAddress, checksums: Checksums) -> bool {
    match checksums {
        Checksums::Right => true,
        Checksums::Unknown => tcp.verify_checksum(&from, &to),
        Checksums::MayBePartial => is_partial(tcp, from, to) || tcp.verify_checksum(&from, &to),
    }
}

/// Whether the checksum was left to a device: it holds the sum of the pseudo-header alone.
fn is_partial(tcp: &TcpPacket<&[u8]>, from: IpAddress, to: IpAddress) -> bool {
    let bytes = usize::from(tcp.header_len()) + tcp.payload().len();
    tcp.checksum() == checksum::pseudo_header(&from, &to, IpProtocol::Tcp, bytes as u32)
}
