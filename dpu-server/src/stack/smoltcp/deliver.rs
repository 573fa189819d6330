//! One message to many connections: a segment each, made from the connection's template.
//!
//! ```text
//! template   Ethernet, IP, TCP as for an empty segment of zeros, and its checksums      once a connection
//! message    the sum of its octets                                                     once a message
//! segment    + numbers, window, length; checksums by addition (RFC 1071 §2)            all that is left
//! ```
//!
//! What cannot leave as one segment now is refused, and goes the usual way: `calls::send`.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::tcp::AtOnce;
use smoltcp::time::Instant;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber as Number};

use super::clock;
use super::link::{ETHERNET_BYTES, Header};
use super::segment::{Flow, HOP_LIMIT};
use super::tcp::Tcp;
use super::wheel::Due;
use crate::stack::Key;
use mqttshim_port::{Mac, Transmit};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
/// Headers without options, at most.
const HEADERS_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + TCP_BYTES;

/// The headers of a connection's segments; by default of none, to nobody.
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

    /// Whether it is of frames to this neighbour.
    fn is_to(&self, mac: Mac) -> bool {
        self.tcp_at > 0 && self.bytes[..mac.len()] == mac
    }

    /// Bytes of headers behind Ethernet's.
    fn packet_headers(&self) -> usize {
        usize::from(self.tcp_at) - ETHERNET_BYTES + TCP_BYTES
    }

    /// Writes a segment with this payload, of which `sum` is the sum.
    #[inline]
    fn write(&self, out: &mut impl Transmit, segment: &AtOnce, payload: &[u8], sum: u16) {
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
            let (number, acknowledged) = (segment.seq_number.0 as u32, segment.ack_number.0 as u32);
            tcp[4..8].copy_from_slice(&number.to_be_bytes());
            tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
            put(&mut tcp[14..16], segment.window_len);
            let halves = |word: u32| (word >> 16) + (word & 0xffff);
            let total = halves(number) + halves(acknowledged) + u32::from(segment.window_len);
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

/// The sums of a batch's messages, each made once.
#[derive(Debug, Default)]
pub(super) struct Sums(Vec<Option<u16>>);

impl Sums {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// That of this message.
    #[inline]
    pub(super) fn of(&mut self, message: u32, bytes: &[u8]) -> u16 {
        let place = message as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        *self.0[place].get_or_insert_with(|| smoltcp::wire::checksum::data(bytes))
    }
}

impl Tcp {
    /// Sends a message, whole and at once, at this instant of smoltcp's clock; false: nothing of it was, and
    /// none is until the next send. `sum` is the message's, which nobody wants of one that is longer than a segment.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        key: Key,
        message: &[u8],
        sum: impl FnOnce() -> u16,
        out: &mut impl Transmit,
    ) -> bool {
        let Some(id) = self.sockets.connection(key) else { return false };
        let Some(connection) = self.connections.get_mut(id as usize) else { return false };
        let takes = !connection.is_dirty && !connection.has_refused && out.has_room();
        let Some(mac) = connection.mac.filter(|_| takes && !self.budget.is_exhausted()) else {
            connection.has_refused = true;
            return false;
        };
        if !connection.template.is_to(mac) {
            let hop_limit = connection.socket.hop_limit().unwrap_or(HOP_LIMIT);
            let header = self.link.header(mac);
            connection.template = Template::new(&header, &connection.flow, hop_limit);
        }
        let template = &connection.template;
        let mss = self.capabilities.mtu - template.packet_headers();
        connection.socket.set_timeout(Some(connection.patience));
        let Some(segment) = connection.socket.send_at_once(now, mss, message) else {
            connection.has_refused = true;
            return false;
        };
        template.write(out, &segment, message, sum());
        self.budget.count(connection);
        let at = clock::millisecond(segment.poll_at);
        if connection.armed.is_none_or(|armed| at < armed) {
            connection.armed = Some(at);
            self.wheel.put(Due { id, at });
        }
        true
    }
}
