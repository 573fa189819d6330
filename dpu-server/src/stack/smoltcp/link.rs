//! Ethernet, and how addresses are found on it: ARP (RFC 826) and neighbour discovery (RFC 4861).
//!
//! Who connects to the card is answered where its segments came from, so nothing has to be found for it. Neighbours are asked
//! for only where the card connects itself.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Packet, Icmpv6Repr, IpCidr,
    IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

use mqttshim_port::{Mac, Transmit};

/// Bytes before a packet.
pub(super) const ETHERNET_BYTES: usize = 14;
const BROADCAST: Mac = [0xff; 6];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ARP_BYTES: usize = 28;
/// Neighbours that are remembered; beyond it, all are asked for again.
const NEIGHBORS_MAX: usize = 1024;
/// For how long what a neighbour said is believed (RFC 1122 §2.3.2.1: a minute).
const FRESH: Duration = Duration::from_secs(60);
/// A neighbour is asked for so often (RFC 4861 §10: MAX_UNICAST_SOLICIT), so far apart (RETRANS_TIMER; RFC 1122 §2.3.2.1).
pub(super) const ASKS_MAX: u32 = 3;
pub(super) const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// The hop limit of neighbour discovery, by which a router's distance shows (RFC 4861 §7.1).
const HOP_LIMIT: u8 = 255;

/// An Ethernet header, less the type, which the packet tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) to: Mac,
    pub(super) from: Mac,
}

impl Header {
    /// The bytes before `packet`.
    pub(super) fn of(&self, packet: &[u8]) -> [u8; ETHERNET_BYTES] {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        self.with(if is_v6 { IPV6 } else { IPV4 })
    }

    fn with(&self, kind: [u8; 2]) -> [u8; ETHERNET_BYTES] {
        let mut bytes = [0; ETHERNET_BYTES];
        bytes[..6].copy_from_slice(&self.to);
        bytes[6..12].copy_from_slice(&self.from);
        bytes[12..].copy_from_slice(&kind);
        bytes
    }
}

/// What a frame carries.
pub(super) enum Frame<'a> {
    /// An IP packet, and who sent the frame.
    Packet(&'a mut [u8], Mac),
    /// Nothing for the layers above: not for us, not IP, or answered.
    Done,
}

/// See the module.
pub(super) struct Link {
    mac: Mac,
    addresses: Vec<IpCidr>,
    gateway: Option<IpAddr>,
    /// Where neighbours are, and when they said so.
    known: HashMap<IpAddr, (Mac, Duration)>,
}

impl Link {
    pub(super) fn new(mac: Mac, addresses: Vec<IpCidr>, gateway: Option<IpAddr>) -> Link {
        Link { mac, addresses, gateway, known: HashMap::new() }
    }

    /// Whether the address is the card's.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| IpAddr::from(own.address()) == address)
    }

    /// The card's address towards another.
    pub(super) fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let same_kind = |own: &&IpCidr| IpAddr::from(own.address()).is_ipv4() == to.is_ipv4();
        let near = self.addresses.iter().find(|own| own.contains_addr(&to.into()));
        near.or_else(|| self.addresses.iter().find(same_kind)).map(|own| own.address().into())
    }

    /// Who on the link takes packets for `to`; `None`: nobody does.
    pub(super) fn next_hop(&self, to: IpAddr) -> Option<IpAddr> {
        if self.addresses.iter().any(|own| own.contains_addr(&to.into())) {
            return Some(to);
        }
        self.gateway.filter(|gateway| gateway.is_ipv4() == to.is_ipv4())
    }

    /// The header of frames to a neighbour.
    pub(super) fn header(&self, to: Mac) -> Header {
        Header { to, from: self.mac }
    }

    /// Where a neighbour is, or was, if that is known.
    pub(super) fn neighbor(&self, address: IpAddr) -> Option<Mac> {
        self.known.get(&address).map(|(mac, _)| *mac)
    }

    /// Whether it said so not long ago.
    pub(super) fn is_fresh(&self, now: Duration, address: IpAddr) -> bool {
        self.known.get(&address).is_some_and(|(_, told)| now.saturating_sub(*told) < FRESH)
    }

    /// A neighbour does not answer any more.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.known.remove(&address);
    }

    /// Takes a frame: answers what asks for the card, and learns from what answers it.
    pub(super) fn receive<'a>(
        &mut self,
        now: Duration,
        frame: &'a mut [u8],
        out: &mut impl Transmit,
    ) -> Frame<'a> {
        let Some((header, packet)) = frame.split_at_mut_checked(ETHERNET_BYTES) else {
            return Frame::Done;
        };
        let to_all = header[0] & 1 == 1;
        let from: Mac = header[6..12].try_into().unwrap_or(BROADCAST);
        if (!to_all && header[..6] != self.mac) || from[0] & 1 == 1 || packet.is_empty() {
            return Frame::Done;
        }
        match [header[12], header[13]] {
            ARP => self.arp(now, packet, from, out),
            IPV4 if packet[0] >> 4 == 4 => return Frame::Packet(packet, from),
            IPV6 if packet[0] >> 4 == 6 && !self.discovery(now, packet, from, out) => {
                return Frame::Packet(packet, from);
            }
            _ => {}
        }
        Frame::Done
    }

    fn learn(&mut self, now: Duration, address: IpAddr, mac: Mac) {
        if self.known.len() >= NEIGHBORS_MAX {
            self.known.clear();
        }
        self.known.insert(address, (mac, now));
    }

    /// The same of a neighbour that is known already: it may tell all that it has moved (RFC 826, RFC 4861 §7.2.3).
    fn update(&mut self, now: Duration, address: IpAddr, mac: Mac) {
        if let Some(known) = self.known.get_mut(&address) {
            *known = (mac, now);
        }
    }

    fn arp(&mut self, now: Duration, packet: &[u8], from: Mac, out: &mut impl Transmit) {
        let Ok(packet) = ArpPacket::new_checked(packet) else { return };
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = ArpRepr::parse(&packet)
        else {
            return;
        };
        let source = IpAddr::V4(source_protocol_addr);
        if source_hardware_addr.is_unicast() {
            self.update(now, source, source_hardware_addr.0);
        }
        if !self.is_own(IpAddr::V4(target_protocol_addr)) {
            return;
        }
        match operation {
            ArpOperation::Request => {
                let to = source_hardware_addr;
                self.say_arp(
                    ArpOperation::Reply,
                    from,
                    target_protocol_addr,
                    (to, source_protocol_addr),
                    out,
                );
            }
            ArpOperation::Reply if source_hardware_addr.is_unicast() => {
                self.learn(now, source, source_hardware_addr.0);
            }
            _ => {}
        }
    }

    fn say_arp(
        &self,
        operation: ArpOperation,
        to: Mac,
        own: Ipv4Addr,
        target: (EthernetAddress, Ipv4Addr),
        out: &mut impl Transmit,
    ) {
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.mac),
            source_protocol_addr: own,
            target_hardware_addr: target.0,
            target_protocol_addr: target.1,
        };
        let header = self.header(to).with(ARP);
        out.frame(ETHERNET_BYTES + ARP_BYTES, |frame| {
            frame[..ETHERNET_BYTES].copy_from_slice(&header);
            repr.emit(&mut ArpPacket::new_unchecked(&mut frame[ETHERNET_BYTES..]));
        });
    }

    /// Asks for a neighbour.
    pub(super) fn ask(&self, address: IpAddr, out: &mut impl Transmit) {
        match (address, self.source(address)) {
            (IpAddr::V4(address), Some(IpAddr::V4(own))) => {
                let nobody = EthernetAddress([0; 6]);
                self.say_arp(ArpOperation::Request, BROADCAST, own, (nobody, address), out);
            }
            (IpAddr::V6(address), Some(IpAddr::V6(own))) => {
                let [.., a, b, c] = address.octets();
                let group = Ipv6Addr::new(
                    0xff02,
                    0,
                    0,
                    0,
                    0,
                    1,
                    0xff00 | u16::from(a),
                    u16::from_be_bytes([b, c]),
                );
                let lladdr = Some(RawHardwareAddress::from(EthernetAddress(self.mac)));
                let repr = NdiscRepr::NeighborSolicit { target_addr: address, lladdr };
                self.say_discovery(repr, [0x33, 0x33, 0xff, a, b, c], own, group, out);
            }
            _ => {}
        }
    }

    /// Whether the packet was of neighbour discovery, and so is dealt with.
    fn discovery(
        &mut self,
        now: Duration,
        packet: &[u8],
        from: Mac,
        out: &mut impl Transmit,
    ) -> bool {
        let Ok(ip) = Ipv6Packet::new_checked(packet) else { return false };
        if ip.next_header() != IpProtocol::Icmpv6 {
            return false;
        }
        let Ok(icmp) = Icmpv6Packet::new_checked(ip.payload()) else { return false };
        if !icmp.msg_type().is_ndisc() {
            return false;
        }
        let (source, to) = (ip.src_addr(), ip.dst_addr());
        let repr = Icmpv6Repr::parse(&source, &to, &icmp, &ChecksumCapabilities::default());
        // From beyond a router it means nothing (RFC 4861 §7.1).
        let Ok(Icmpv6Repr::Ndisc(repr)) = repr else { return true };
        if ip.hop_limit() != HOP_LIMIT {
            return true;
        }
        let told = |lladdr: Option<RawHardwareAddress>| {
            lladdr.and_then(|raw| <Mac>::try_from(raw.as_bytes()).ok())
        };
        match repr {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } => {
                if let Some(mac) = told(lladdr) {
                    self.update(now, IpAddr::V6(source), mac);
                }
                if self.is_own(IpAddr::V6(target_addr)) {
                    self.advertise(target_addr, source, from, out);
                }
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } => {
                self.learn(now, IpAddr::V6(target_addr), told(lladdr).unwrap_or(from));
            }
            _ => {}
        }
        true
    }

    fn advertise(&self, own: Ipv6Addr, to: Ipv6Addr, mac: Mac, out: &mut impl Transmit) {
        let mut flags = NdiscNeighborFlags::OVERRIDE;
        // Somebody who only asks whether the address is free has none yet (RFC 4861 §7.2.4).
        let (to, mac) = if to.is_unspecified() {
            (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), [0x33, 0x33, 0, 0, 0, 1])
        } else {
            flags |= NdiscNeighborFlags::SOLICITED;
            (to, mac)
        };
        let lladdr = Some(RawHardwareAddress::from(EthernetAddress(self.mac)));
        let repr = NdiscRepr::NeighborAdvert { flags, target_addr: own, lladdr };
        self.say_discovery(repr, mac, own, to, out);
    }

    fn say_discovery(
        &self,
        repr: NdiscRepr<'_>,
        mac: Mac,
        own: Ipv6Addr,
        to: Ipv6Addr,
        out: &mut impl Transmit,
    ) {
        let repr = Icmpv6Repr::Ndisc(repr);
        let ip = Ipv6Repr {
            src_addr: own,
            dst_addr: to,
            next_header: IpProtocol::Icmpv6,
            payload_len: repr.buffer_len(),
            hop_limit: HOP_LIMIT,
        };
        let header = self.header(mac).with(IPV6);
        out.frame(ETHERNET_BYTES + ip.buffer_len() + ip.payload_len, |frame| {
            frame[..ETHERNET_BYTES].copy_from_slice(&header);
            let mut packet = Ipv6Packet::new_unchecked(&mut frame[ETHERNET_BYTES..]);
            ip.emit(&mut packet);
            let mut icmp = Icmpv6Packet::new_unchecked(packet.payload_mut());
            repr.emit(&own, &to, &mut icmp, &ChecksumCapabilities::default());
        });
    }
}
