//! A connection's segment as a frame: Ethernet, IP and TCP headers, the payload's only copy, checksums.
//!
//! What is longer than a segment is left to a port that cuts, and so are its checksums.

use smoltcp::phy::{Checksum, ChecksumCapabilities, PacketMeta};
use smoltcp::wire::{IpProtocol, IpRepr, IpVersion, TcpPacket, TcpRepr, checksum};

use super::link::{ETHERNET_BYTES, Header};
use mqttshim_port::{Transmit, Unfinished};

/// Writes a segment where it leaves. `meta`: into what it is to be cut there.
pub(super) fn emit<T: Transmit>(
    out: &mut T,
    header: &Header,
    ip: &IpRepr,
    tcp: &TcpRepr<'_>,
    meta: PacketMeta,
) {
    let tcp_at = ETHERNET_BYTES + ip.header_len();
    let length = tcp_at + tcp.buffer_len();
    let mut checksums = ChecksumCapabilities::default();
    // Known when this is compiled: other ports pay for none of it.
    let cut = meta.segmentation_offload_size.filter(|_| T::UNFINISHED_BYTES_MAX.is_some());
    let Some(segment_bytes) = cut else {
        return out.frame(length, |frame| write(frame, header, ip, tcp, &checksums));
    };
    let left = Unfinished {
        is_v6: ip.version() == IpVersion::Ipv6,
        tcp_at: tcp_at as u16,
        payload_at: (tcp_at + tcp.header_len()) as u16,
        segment_bytes,
    };
    out.unfinished(length, left, |frame| {
        checksums.tcp = Checksum::None;
        write(frame, header, ip, tcp, &checksums);
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        let sum = checksum::pseudo_header(&from, &to, IpProtocol::Tcp, tcp.buffer_len() as u32);
        TcpPacket::new_unchecked(&mut frame[tcp_at..]).set_checksum(sum);
    });
}

fn write(
    frame: &mut [u8],
    header: &Header,
    ip: &IpRepr,
    tcp: &TcpRepr<'_>,
    checksums: &ChecksumCapabilities,
) {
    let (ethernet, packet) = frame.split_at_mut(ETHERNET_BYTES);
    ip.emit(&mut *packet, checksums);
    ethernet.copy_from_slice(&header.of(packet));
    let mut segment = TcpPacket::new_unchecked(&mut packet[ip.header_len()..]);
    tcp.emit(&mut segment, &ip.src_addr(), &ip.dst_addr(), checksums);
}
