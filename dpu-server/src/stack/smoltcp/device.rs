//! One packet in, packets out: how smoltcp sees a port.
//!
//! smoltcp works on IP packets here. The Ethernet header is ours: a connection's segments go to where its own came from.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber as Number,
};

use super::link::{ETHERNET_BYTES, Header};
use mqttshim_port::{Capabilities, Transmit};

/// See the module. Lives for one call of smoltcp.
pub(super) struct OnePacket<'a, T> {
    /// What arrived, if anything.
    pub(super) arrived: Option<&'a [u8]>,
    pub(super) out: &'a mut T,
    /// What to put before what leaves.
    pub(super) header: Header,
    pub(super) capabilities: Capabilities,
    /// The numbers of the connection whose segments leave.
    pub(super) numbers: &'a mut Option<Numbers>,
}

/// The sequence numbers a connection has used: ISS, and the highest SND.NXT there was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Numbers {
    pub(super) first: Number,
    pub(super) next: Number,
}

impl<T: Transmit> Device for OnePacket<'_, T> {
    type RxToken<'b>
        = Arrived<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Leaving<'b, T>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Leaving<'_, T>)> {
        let packet = self.arrived.take()?;
        Some((
            Arrived(packet),
            Leaving { out: self.out, header: &self.header, numbers: self.numbers },
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_, T>> {
        self.out.has_room().then_some(Leaving {
            out: self.out,
            header: &self.header,
            numbers: self.numbers,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(&self.capabilities)
    }
}

/// In smoltcp's words.
pub(super) fn capabilities(port: &Capabilities) -> DeviceCapabilities {
    let mut it = DeviceCapabilities::default();
    it.medium = Medium::Ip;
    it.max_transmission_unit = port.mtu;
    // What arrives was verified before its numbers were changed (`guard`).
    it.checksum.tcp = Checksum::Tx;
    it.checksum.ipv4 = Checksum::Tx;
    it
}

/// The packet that arrived.
pub(super) struct Arrived<'a>(&'a [u8]);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a packet to send.
pub(super) struct Leaving<'a, T> {
    out: &'a mut T,
    header: &'a Header,
    numbers: &'a mut Option<Numbers>,
}

impl<T: Transmit> TxToken for Leaving<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        self.out.frame(ETHERNET_BYTES + length, |frame| {
            let (header, packet) = frame.split_at_mut(ETHERNET_BYTES);
            let outcome = f(packet);
            header.copy_from_slice(&self.header.of(packet));
            note(packet, self.numbers);
            outcome
        })
    }
}

/// Notes the numbers of a segment that leaves. After a time-out smoltcp begins again at the oldest byte and forgets that it had
/// sent more; a bare acknowledgement must carry the highest number all the same (RFC 9293 §3.4), or a client that has these
/// bytes takes it for an old one, and two ends that both timed out never hear each other.
fn note(packet: &mut [u8], numbers: &mut Option<Numbers>) -> Option<()> {
    let (at, from, to) = match packet.first()? >> 4 {
        4 => {
            let ip = Ipv4Packet::new_checked(&*packet).ok()?;
            if ip.next_header() != IpProtocol::Tcp {
                return None;
            }
            (
                usize::from(ip.header_len()),
                IpAddress::Ipv4(ip.src_addr()),
                IpAddress::Ipv4(ip.dst_addr()),
            )
        }
        _ => {
            let ip = Ipv6Packet::new_checked(&*packet).ok()?;
            if ip.next_header() != IpProtocol::Tcp {
                return None;
            }
            (ip.header_len(), IpAddress::Ipv6(ip.src_addr()), IpAddress::Ipv6(ip.dst_addr()))
        }
    };
    let mut tcp = TcpPacket::new_checked(&mut packet[at..]).ok()?;
    let (begin, bytes) = (tcp.seq_number(), tcp.segment_len());
    let numbers = numbers.get_or_insert(Numbers { first: begin, next: begin });
    if bytes == 0 && !tcp.rst() && begin < numbers.next {
        tcp.set_seq_number(numbers.next);
        tcp.fill_checksum(&from, &to);
    }
    numbers.next = numbers.next.max(begin + bytes);
    Some(())
}
