//! What the demultiplexer must know of a TCP segment, and may change in it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use mqttshim_port::Checksums;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber as Number, checksum,
};

/// The hop limit, or time to live, of what is sent.
pub(super) const HOP_LIMIT: u8 = 64;

/// Names a connection: both ends, as they stand in its segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Flow {
    /// The card's end.
    pub(super) local: SocketAddr,
    /// The client's.
    pub(super) remote: SocketAddr,
}

/// A packet that arrived.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Arrival<'a> {
    /// A whole TCP segment with a right checksum.
    Segment(Segment<'a>),
    /// Something else that may be answered: ICMP, UDP.
    Other,
    /// Nothing to be answered: broken, cut, a fragment, behind extension headers, from nobody or to many.
    Broken,
}

/// A TCP segment, and whose it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Segment<'a> {
    pub(super) flow: Flow,
    /// What it says.
    pub(super) says: TcpRepr<'a>,
}

impl Segment<'_> {
    /// Whether it asks for a new connection.
    pub(super) fn opens(&self) -> bool {
        self.says.control == TcpControl::Syn && self.says.ack_number.is_none()
    }

    /// Its IP header, as far as anybody asks.
    pub(super) fn ip(&self) -> IpRepr {
        IpRepr::new(
            self.flow.remote.ip().into(),
            self.flow.local.ip().into(),
            IpProtocol::Tcp,
            self.says.buffer_len(),
            HOP_LIMIT,
        )
    }

    /// Makes it say what it does not: a bare segment that probes, as one of a keep-alive does, one before what is expected. The
    /// connection answers it with an acknowledgement of what it has, at most one in a while: a challenge (RFC 5961 §5).
    pub(super) fn make_probe(&mut self, expected: Number, acknowledged: Number) {
        self.says = TcpRepr {
            control: TcpControl::None,
            seq_number: expected - 1,
            ack_number: Some(acknowledged),
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
            ..self.says
        };
    }
}

/// Looks at an IP packet. `checksums`: what is known of its TCP checksum.
pub(super) fn arrival(packet: &[u8], checksums: Checksums) -> Arrival<'_> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, checksums),
        Some(6) => ipv6(packet, checksums),
        _ => Arrival::Broken,
    }
}

fn ipv4(packet: &[u8], checksums: Checksums) -> Arrival<'_> {
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

fn ipv6(packet: &[u8], checksums: Checksums) -> Arrival<'_> {
    let Ok(ip) = Ipv6Packet::new_checked(packet) else { return Arrival::Broken };
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    if from.is_multicast() || from.is_loopback() {
        return Arrival::Broken;
    }
    match ip.next_header() {
        IpProtocol::Tcp => {}
        // Whoever answers for nobody would look behind these, and reset the connection of a segment that is there.
        IpProtocol::HopByHop
        | IpProtocol::Ipv6Route
        | IpProtocol::Ipv6Frag
        | IpProtocol::Ipv6Opts => return Arrival::Broken,
        _ => return Arrival::Other,
    }
    let at = ip.header_len()..ip.total_len();
    tcp(packet, at, IpAddr::V6(from), IpAddr::V6(to), checksums)
}

fn tcp(
    packet: &[u8],
    at: Range<usize>,
    from: IpAddr,
    to: IpAddr,
    checksums: Checksums,
) -> Arrival<'_> {
    let bytes = &packet[at];
    let Ok(tcp) = TcpPacket::new_checked(bytes) else { return Arrival::Broken };
    let is_addressed = !from.is_unspecified() && !to.is_multicast();
    let before = || {
        let length = bytes.len() as u32;
        checksum::pseudo_header(&from.into(), &to.into(), IpProtocol::Tcp, length)
    };
    if !is_addressed || !is_right(&tcp, bytes, before, checksums) {
        return Arrival::Broken;
    }
    let unverified = ChecksumCapabilities::ignored();
    let Ok(says) = TcpRepr::parse(&tcp, &from.into(), &to.into(), &unverified) else {
        return Arrival::Broken;
    };
    let flow = Flow {
        local: SocketAddr::new(to, says.dst_port),
        remote: SocketAddr::new(from, says.src_port),
    };
    Arrival::Segment(Segment { flow, says })
}

/// Whether a segment is as its sender made it, as far as can be known. `before`: the sum of its pseudo-header.
///
/// Not `TcpPacket::verify_checksum`, which believes everything when it is fuzzed.
fn is_right(
    tcp: &TcpPacket<&[u8]>,
    bytes: &[u8],
    before: impl Fn() -> u16,
    checksums: Checksums,
) -> bool {
    let is_whole = || checksum::combine(&[before(), checksum::data(bytes)]) == !0;
    match checksums {
        Checksums::Right => true,
        Checksums::Unknown => is_whole(),
        // Left to a device, it holds the sum of the pseudo-header alone.
        Checksums::MayBePartial => tcp.checksum() == before() || is_whole(),
    }
}
