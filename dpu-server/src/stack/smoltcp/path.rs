//! What routers say of packets that did not arrive: too long for the way (RFC 1191, RFC 8201), or nobody there (RFC 9293 §3.9.2.2).
//!
//! Anybody can write such a packet. It is believed of a connection that there is, if it quotes a byte that is on its way to the
//! client and not acknowledged (RFC 5927 §4.1). What the way carries is believed down to what every way carries, and holds for that
//! connection, for its life. That nobody is there ends a connect that is under way, and nothing else: it may pass (MUST-56, RFC 5927 §5.2).

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use smoltcp::socket::tcp::State;
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

/// What became of a packet of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct News {
    flow: Flow,
    /// Of its first byte.
    sequence: Number,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It was too long for somebody: the way carries so many bytes of an IP packet.
    TooBig(usize),
    /// It cannot be delivered; what `connect(2)` tells of it.
    Unreachable(Errno),
}

impl Tcp {
    /// Takes what a router told, if it is believed.
    pub(super) fn heed(&mut self, news: &News) {
        let Some(id) = self.flows.find(&news.flow, &self.connections) else { return };
        let connection = &mut self.connections[id];
        let ahead = distance(connection.socket.send_unacknowledged(), news.sequence);
        match news.fate {
            // What was lost is sent again when its time comes. Of what is in the buffer some may not have been sent yet, but nothing
            // else can have been.
            Fate::TooBig(mtu)
                if usize::try_from(ahead).is_ok_and(|at| at < connection.socket.send_queue()) =>
            {
                let ip_bytes = if news.flow.local.is_ipv4() { 20 } else { 40 };
                connection.socket.limit_mss(mtu - ip_bytes - TCP_BYTES);
            }
            // Its holder is told, and lets it go.
            Fate::Unreachable(error)
                if ahead == 0 && connection.socket.state() == State::SynSent =>
            {
                connection.fail(error);
                self.tell(id);
            }
            Fate::TooBig(_) | Fate::Unreachable(_) => {}
        }
    }
}

/// What a packet says, if it says that.
pub(super) fn news(packet: &[u8]) -> Option<News> {
    match packet.first()? >> 4 {
        4 => by_icmp(packet),
        _ => by_icmpv6(packet),
    }
}

fn by_icmp(packet: &[u8]) -> Option<News> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmp {
        return None;
    }
    let icmp = Icmpv4Packet::new_checked(ip.payload()).ok()?;
    let is_news =
        matches!(icmp.msg_type(), Icmpv4Message::DstUnreachable | Icmpv4Message::TimeExceeded);
    if !is_news || !icmp.verify_checksum() {
        return None;
    }
    // A quote is shorter than it says, so nothing is checked beyond what is there.
    let quote = ip.payload().get(8..)?;
    let header_bytes = usize::from(quote.first()? & 15) * 4;
    let segment = quote.get(header_bytes..header_bytes + QUOTED_BYTES)?;
    if header_bytes < 20 || quote[0] >> 4 != 4 || quote[9] != u8::from(IpProtocol::Tcp) {
        return None;
    }
    let fate = match (icmp.msg_type(), icmp.msg_code()) {
        (Icmpv4Message::DstUnreachable, FRAGMENTATION_NEEDED) => {
            let told = usize::from(u16::from_be_bytes(number(ip.payload(), 6)?));
            let quoted = usize::from(u16::from_be_bytes(number(quote, 2)?));
            let mtu = if told == 0 { plateau_below(quoted) } else { told };
            // Less than every way carries is no news of a way.
            Fate::TooBig((mtu >= 68).then_some(mtu.max(IPV4_MTU_MIN))?)
        }
        (Icmpv4Message::DstUnreachable, code) => Fate::Unreachable(unreachable(code)?),
        _ => Fate::Unreachable(Errno::HOSTUNREACH),
    };
    let [from, to] = [12, 16].map(|at| number::<4>(quote, at));
    let flow = flow(IpAddr::from(from?), IpAddr::from(to?), segment)?;
    Some(News { flow, sequence: sequence(segment)?, fate })
}

/// As Linux has it (`icmp_err_convert`, net/ipv4/icmp.c), for codes that routers of today send.
fn unreachable(code: u8) -> Option<Errno> {
    match code {
        0 | 6 | 9 | 11 => Some(Errno::NETUNREACH),
        1 | 10 | 12..=15 => Some(Errno::HOSTUNREACH),
        2 => Some(Errno::NOPROTOOPT),
        3 => Some(Errno::CONNREFUSED),
        7 => Some(Errno::HOSTDOWN),
        _ => None,
    }
}

fn by_icmpv6(packet: &[u8]) -> Option<News> {
    let ip = Ipv6Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmpv6 {
        return None;
    }
    let icmp = Icmpv6Packet::new_checked(ip.payload()).ok()?;
    let fate = match icmp.msg_type() {
        // RFC 8201 §4: less is discarded.
        Icmpv6Message::PktTooBig => {
            let mtu = u32::from_be_bytes(number(ip.payload(), 4)?) as usize;
            Fate::TooBig((mtu >= IPV6_MTU_MIN).then_some(mtu)?)
        }
        Icmpv6Message::DstUnreachable => Fate::Unreachable(unreachable_v6(icmp.msg_code())?),
        Icmpv6Message::TimeExceeded => Fate::Unreachable(Errno::HOSTUNREACH),
        _ => return None,
    };
    if !icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()) {
        return None;
    }
    let quote = ip.payload().get(8..)?;
    let segment = quote.get(40..40 + QUOTED_BYTES)?;
    if quote[0] >> 4 != 6 || quote[6] != u8::from(IpProtocol::Tcp) {
        return None;
    }
    let [from, to] = [8, 24].map(|at| number::<16>(quote, at));
    let flow = flow(IpAddr::from(from?), IpAddr::from(to?), segment)?;
    Some(News { flow, sequence: sequence(segment)?, fate })
}

/// As Linux has it (`tab_unreach`, net/ipv6/icmp.c).
fn unreachable_v6(code: u8) -> Option<Errno> {
    match code {
        0 => Some(Errno::NETUNREACH),
        1 | 5 | 6 => Some(Errno::ACCESS),
        2 | 3 => Some(Errno::HOSTUNREACH),
        4 => Some(Errno::CONNREFUSED),
        _ => None,
    }
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
