//! The headers of a connection's segments, made once: a segment is then some numbers and additions.
//!
//! ```text
//! template   Ethernet, IP, TCP as for an empty segment of zeros, and its checksums      once a connection
//! message    the sum of its octets                                                     once a message
//! segment    + numbers, window, length; checksums by addition (RFC 1071 §2)            all that is left
//! ```

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber as Number};

use super::link::{ETHERNET_BYTES, Header};
use super::segment::Flow;
use mqttshim_port::{Mac, Transmit};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
/// Headers without options, at most.
const HEADERS_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + TCP_BYTES;

/// What tells a segment of a connection from its others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) window: u16,
}

/// See the module; by default of none, to nobody.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: [u8; HEADERS_MAX],
    /// Where the TCP header begins; 0: there is none.
    tcp_at: u8,
    /// The sums that its checksums are of.
    ip_sum: u16,
    tcp_sum: u16,
}

impl Default for Template {
    fn default() -> Template {
        Template { bytes: [0; HEADERS_MAX], tcp_at: 0, ip_sum: 0, tcp_sum: 0 }
    }
}

impl Template {
    /// Of a flow's segments to this neighbour.
    pub(super) fn new(header: &Header, flow: &Flow, hop_limit: u8) -> Template {
        let (from, to) = (flow.local.ip().into(), flow.remote.ip().into());
        let tcp = TcpRepr {
            src_port: flow.local.port(),
            dst_port: flow.remote.port(),
            control: TcpControl::Psh,
            seq_number: Number(0),
            ack_number: Some(Number(0)),
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        };
        let ip = IpRepr::new(from, to, IpProtocol::Tcp, TCP_BYTES, hop_limit);
        let checksums = ChecksumCapabilities::default();
        let mut bytes = [0; HEADERS_MAX];
        let (ethernet, packet) = bytes.split_at_mut(ETHERNET_BYTES);
        ip.emit(&mut *packet, &checksums);
        ethernet.copy_from_slice(&header.of(packet));
        let ip_bytes = ip.header_len();
        let segment = &mut packet[ip_bytes..ip_bytes + TCP_BYTES];
        tcp.emit(&mut TcpPacket::new_unchecked(segment), &from, &to, &checksums);
        let sum_of = |at: usize| !u16::from_be_bytes([packet[at], packet[at + 1]]);
        let (ip_sum, tcp_sum) = (sum_of(10), sum_of(ip_bytes + 16));
        Template { bytes, tcp_at: (ETHERNET_BYTES + ip_bytes) as u8, ip_sum, tcp_sum }
    }

    /// Whether it is of frames to this neighbour, with this hop limit.
    pub(super) fn is_of(&self, mac: Mac, hop_limit: u8) -> bool {
        let hop_limit_at = if self.packet_headers() == IPV4_BYTES + TCP_BYTES { 8 } else { 7 };
        self.tcp_at > 0
            && self.bytes[..mac.len()] == mac
            && self.bytes[ETHERNET_BYTES + hop_limit_at] == hop_limit
    }

    /// Bytes of headers behind Ethernet's.
    pub(super) fn packet_headers(&self) -> usize {
        (usize::from(self.tcp_at) + TCP_BYTES).saturating_sub(ETHERNET_BYTES)
    }

    /// Writes a segment with this payload, of which `sum` is the sum.
    #[inline]
    pub(super) fn write(
        &self,
        out: &mut impl Transmit,
        numbers: Numbers,
        payload: &[u8],
        sum: u16,
    ) {
        let tcp_at = usize::from(self.tcp_at);
        out.frame(tcp_at + TCP_BYTES + payload.len(), |frame| {
            // Whole, whatever its length: copying a fixed size is a few instructions.
            if let Some(head) = frame.first_chunk_mut::<HEADERS_MAX>() {
                *head = self.bytes;
            } else {
                let headers = tcp_at + TCP_BYTES;
                frame[..headers].copy_from_slice(&self.bytes[..headers]);
            }
            let (headers, body) = frame.split_at_mut(tcp_at + TCP_BYTES);
            body.copy_from_slice(payload);
            let (network, tcp) = headers.split_at_mut(tcp_at);
            // Nothing is read back: the frame's memory may not be at hand yet, and stores do not wait for it.
            let bytes = payload.len() as u16;
            let ip = &mut network[ETHERNET_BYTES..];
            if ip.len() == IPV4_BYTES {
                put(&mut ip[2..4], (IPV4_BYTES + TCP_BYTES) as u16 + bytes);
                put(&mut ip[10..12], !fold(u32::from(self.ip_sum) + u32::from(bytes)));
            } else {
                put(&mut ip[4..6], TCP_BYTES as u16 + bytes);
            }
            let Numbers { sequence, acknowledged, window } = numbers;
            tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
            tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
            put(&mut tcp[14..16], window);
            let halves = |word: u32| (word >> 16) + (word & 0xffff);
            let total = halves(sequence) + halves(acknowledged) + u32::from(window);
            let total = total + u32::from(self.tcp_sum) + u32::from(bytes) + u32::from(sum);
            put(&mut tcp[16..18], !fold(total));
        });
    }
}

fn put(field: &mut [u8], value: u16) {
    field.copy_from_slice(&value.to_be_bytes());
}

/// A sum of 16-bit words, its carries added to it.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
