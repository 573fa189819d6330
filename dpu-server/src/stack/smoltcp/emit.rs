//! A connection's segment as a frame: Ethernet, IP and TCP headers, the payload's only copy, checksums.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpRepr, TcpPacket, TcpRepr};

use super::link::{ETHERNET_BYTES, Header};
use mqttshim_port::Transmit;

/// Writes a segment where it leaves.
pub(super) fn emit(out: &mut impl Transmit, header: &Header, ip: &IpRepr, tcp: &TcpRepr<'_>) {
    let ip_bytes = ip.header_len();
    out.frame(ETHERNET_BYTES + ip_bytes + tcp.buffer_len(), |frame| {
        let (ethernet, packet) = frame.split_at_mut(ETHERNET_BYTES);
        let checksums = ChecksumCapabilities::default();
        ip.emit(&mut *packet, &checksums);
        ethernet.copy_from_slice(&header.of(packet));
        let mut segment = TcpPacket::new_unchecked(&mut packet[ip_bytes..]);
        tcp.emit(&mut segment, &ip.src_addr(), &ip.dst_addr(), &checksums);
    });
}
