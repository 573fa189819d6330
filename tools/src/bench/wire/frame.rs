//! Ethernet, ARP, IPv4 and TCP as bytes, only as far as a client on one link needs them.
//!
//! RFC 826 (ARP), RFC 791 (IPv4), RFC 9293 §3.1 (TCP header), RFC 7323 §2 (window scale), RFC 1071 (checksum).
//!
//! Received checksums are not verified: a veth hands over frames whose checksum the sender's offload has not filled in
//! yet. Sent ones are complete. No fragments, no IP options on sending, no VLAN, no IPv6.

use std::net::Ipv4Addr;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// To everybody on the link.
pub(crate) const BROADCAST: Mac = [0xff; 6];

/// TCP control bits.
pub(crate) mod flags {
    /// No more data from the sender.
    pub(crate) const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub(crate) const SYN: u8 = 0x02;
    /// Reset the connection.
    pub(crate) const RST: u8 = 0x04;
    /// Push.
    pub(crate) const PSH: u8 = 0x08;
    /// The acknowledgement field is significant.
    pub(crate) const ACK: u8 = 0x10;
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Segment<'a> {
    /// Sequence number of the first byte, SYN or FIN.
    pub(crate) seq: u32,
    /// Next sequence number expected from the other side.
    pub(crate) ack: u32,
    /// Control bits, see [`flags`].
    pub(crate) flags: u8,
    /// The window field as it stands in the header, not scaled.
    pub(crate) window: u16,
    /// Maximum Segment Size option.
    pub(crate) mss: Option<u16>,
    /// Window Scale option.
    pub(crate) window_scale: Option<u8>,
    /// The data.
    pub(crate) payload: &'a [u8],
}

/// Which connection a segment belongs to, seen from its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Path {
    /// Sender's address.
    pub(crate) from: Ipv4Addr,
    /// Sender's port.
    pub(crate) from_port: u16,
    /// Receiver's address.
    pub(crate) to: Ipv4Addr,
    /// Receiver's port.
    pub(crate) to_port: u16,
}

/// A received frame that means something to us.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Frame<'a> {
    /// "Who has `target`? Tell `sender`."
    ArpRequest {
        /// Who asks.
        sender_mac: Mac,
        /// Who asks.
        sender: Ipv4Addr,
        /// Whose hardware address is wanted.
        target: Ipv4Addr,
    },
    /// "`sender` is at `sender_mac`."
    ArpReply {
        /// Who answers.
        sender_mac: Mac,
        /// Who answers.
        sender: Ipv4Addr,
    },
    /// A TCP segment.
    Tcp(Path, Segment<'a>),
}

const ETHERNET_BYTES: usize = 14;
const ARP_BYTES: usize = 28;
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const PROTOCOL_TCP: u8 = 6;

/// Understands a frame; `None` for everything we have no use for, cut short included.
pub(crate) fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let body = frame.get(ETHERNET_BYTES..)?;
    match be16(frame, 12)? {
        TYPE_ARP => parse_arp(body),
        TYPE_IPV4 => parse_ipv4(body),
        _ => None,
    }
}

fn parse_arp(body: &[u8]) -> Option<Frame<'_>> {
    // Hardware type 1 (Ethernet), protocol IPv4, address lengths 6 and 4.
    if body.len() < ARP_BYTES || body[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let sender_mac = body[8..14].try_into().ok()?;
    let sender = address(body, 14)?;
    match be16(body, 6)? {
        1 => Some(Frame::ArpRequest { sender_mac, sender, target: address(body, 24)? }),
        2 => Some(Frame::ArpReply { sender_mac, sender }),
        _ => None,
    }
}

fn parse_ipv4(body: &[u8]) -> Option<Frame<'_>> {
    let header_bytes = usize::from(body.first()? & 0x0f) * 4;
    let total_bytes = usize::from(be16(body, 2)?);
    let fragment = be16(body, 6)? & 0x3fff;
    if body[0] >> 4 != 4 || header_bytes < IPV4_BYTES || fragment != 0 {
        return None;
    }
    // A frame may be padded to 60 bytes; a super-frame above 64 KiB says 0.
    let end = if total_bytes == 0 { body.len() } else { total_bytes };
    let tcp = body.get(header_bytes..end)?;
    if *body.get(9)? != PROTOCOL_TCP {
        return None;
    }
    let data_at = usize::from(*tcp.get(12)? >> 4) * 4;
    if data_at < TCP_BYTES {
        return None;
    }
    let options = tcp.get(TCP_BYTES..data_at)?;
    let path = Path {
        from: address(body, 12)?,
        from_port: be16(tcp, 0)?,
        to: address(body, 16)?,
        to_port: be16(tcp, 2)?,
    };
    let mut segment = Segment {
        seq: be32(tcp, 4)?,
        ack: be32(tcp, 8)?,
        flags: *tcp.get(13)?,
        window: be16(tcp, 14)?,
        payload: tcp.get(data_at..)?,
        ..Segment::default()
    };
    parse_options(options, &mut segment);
    Some(Frame::Tcp(path, segment))
}

/// RFC 9293 §3.2. Stops at the first option that does not fit.
fn parse_options(mut options: &[u8], segment: &mut Segment<'_>) {
    loop {
        match *options {
            [] | [0, ..] => return,
            [1, ref rest @ ..] => options = rest,
            [kind, length, ..] if length >= 2 && usize::from(length) <= options.len() => {
                let value = &options[2..usize::from(length)];
                match (kind, value) {
                    (2, &[high, low]) => segment.mss = Some(u16::from_be_bytes([high, low])),
                    // RFC 7323 §2.3: more than 14 is taken as 14.
                    (3, &[shift]) => segment.window_scale = Some(shift.min(14)),
                    _ => {}
                }
                options = &options[usize::from(length)..];
            }
            _ => return,
        }
    }
}

/// Appends an ARP request for `target`.
pub(crate) fn put_arp_request(out: &mut Vec<u8>, from: Mac, sender: Ipv4Addr, target: Ipv4Addr) {
    put_arp(out, 1, (from, sender), (BROADCAST, [0; 6], target));
}

/// Appends the answer to an ARP request that `to` sent.
pub(crate) fn put_arp_reply(
    out: &mut Vec<u8>,
    from: Mac,
    sender: Ipv4Addr,
    to: Mac,
    target: Ipv4Addr,
) {
    put_arp(out, 2, (from, sender), (to, to, target));
}

fn put_arp(out: &mut Vec<u8>, operation: u8, from: (Mac, Ipv4Addr), to: (Mac, Mac, Ipv4Addr)) {
    put_ethernet(out, to.0, from.0, TYPE_ARP);
    out.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
    out.extend_from_slice(&from.0);
    out.extend_from_slice(&from.1.octets());
    out.extend_from_slice(&to.1);
    out.extend_from_slice(&to.2.octets());
}

/// Appends a whole frame carrying `segment`, checksums complete.
pub(crate) fn put_tcp(out: &mut Vec<u8>, from: Mac, to: Mac, path: Path, segment: &Segment<'_>) {
    put_ethernet(out, to, from, TYPE_IPV4);
    let ip_at = out.len();
    let options = options_of(segment);
    let tcp_bytes = TCP_BYTES + options.len() + segment.payload.len();
    let total = u16::try_from(IPV4_BYTES + tcp_bytes).expect("a segment is at most the MSS");
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&total.to_be_bytes());
    // Identification 0, Don't Fragment, TTL 64, checksum to come.
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
    out.extend_from_slice(&path.from.octets());
    out.extend_from_slice(&path.to.octets());
    let sum = fold(sum_of(&out[ip_at..]));
    out[ip_at + 10..ip_at + 12].copy_from_slice(&sum.to_be_bytes());

    let tcp_at = out.len();
    out.extend_from_slice(&path.from_port.to_be_bytes());
    out.extend_from_slice(&path.to_port.to_be_bytes());
    out.extend_from_slice(&segment.seq.to_be_bytes());
    out.extend_from_slice(&segment.ack.to_be_bytes());
    let words = u8::try_from((TCP_BYTES + options.len()) / 4).expect("at most 15 words");
    out.extend_from_slice(&[words << 4, segment.flags]);
    out.extend_from_slice(&segment.window.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&options);
    out.extend_from_slice(segment.payload);
    let length = u64::try_from(tcp_bytes).expect("fits");
    let pseudo = sum_of(&out[ip_at + 12..ip_at + 20]) + u64::from(PROTOCOL_TCP) + length;
    let sum = fold(pseudo + sum_of(&out[tcp_at..]));
    out[tcp_at + 16..tcp_at + 18].copy_from_slice(&sum.to_be_bytes());
}

fn options_of(segment: &Segment<'_>) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(mss) = segment.mss {
        options.extend_from_slice(&[2, 4]);
        options.extend_from_slice(&mss.to_be_bytes());
    }
    if let Some(shift) = segment.window_scale {
        options.extend_from_slice(&[1, 3, 3, shift]);
    }
    options
}

fn put_ethernet(out: &mut Vec<u8>, to: Mac, from: Mac, kind: u16) {
    out.extend_from_slice(&to);
    out.extend_from_slice(&from);
    out.extend_from_slice(&kind.to_be_bytes());
}

fn sum_of(bytes: &[u8]) -> u64 {
    let mut pairs = bytes.chunks_exact(2);
    let sum: u64 = pairs.by_ref().map(|p| u64::from(u16::from_be_bytes([p[0], p[1]]))).sum();
    sum + pairs.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded below 2^16 above")
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(be32(bytes, at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Mac = [2, 0, 0, 0, 0, 1];
    const THEM: Mac = [2, 0, 0, 0, 0, 2];

    fn path() -> Path {
        Path {
            from: Ipv4Addr::new(198, 18, 0, 2),
            from_port: 10_000,
            to: Ipv4Addr::new(198, 18, 0, 1),
            to_port: 1883,
        }
    }

    #[test]
    fn a_segment_is_parsed_as_it_was_built_and_its_checksums_hold() {
        for payload in [&b""[..], b"x", b"an even", b"odd"] {
            let segment = Segment {
                seq: 0xffff_fff0,
                ack: 7,
                flags: flags::SYN | flags::ACK,
                window: 65_000,
                mss: Some(1460),
                window_scale: Some(7),
                payload,
            };
            let mut out = Vec::new();
            put_tcp(&mut out, US, THEM, path(), &segment);
            assert_eq!(parse(&out), Some(Frame::Tcp(path(), segment)));
            assert_eq!(fold(sum_of(&out[14..34])), 0, "IPv4 header");
            let tcp = &out[34..];
            let pseudo = sum_of(&out[26..34]) + 6 + tcp.len() as u64;
            assert_eq!(fold(pseudo + sum_of(tcp)), 0, "TCP");
        }
    }

    #[test]
    fn ethernet_padding_is_not_payload() {
        let mut out = Vec::new();
        let ack = Segment { flags: flags::ACK, ..Segment::default() };
        put_tcp(&mut out, US, THEM, path(), &ack);
        out.resize(60, 0xee);
        let Some(Frame::Tcp(_, segment)) = parse(&out) else { panic!("not a segment") };
        assert_eq!(segment.payload, b"");
    }

    #[test]
    fn arp_goes_there_and_back() {
        let (us, them) = (Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 0, 1));
        let mut out = Vec::new();
        put_arp_request(&mut out, US, us, them);
        let request = Frame::ArpRequest { sender_mac: US, sender: us, target: them };
        assert_eq!(parse(&out), Some(request));
        out.clear();
        put_arp_reply(&mut out, THEM, them, US, us);
        assert_eq!(parse(&out), Some(Frame::ArpReply { sender_mac: THEM, sender: them }));
    }

    #[test]
    fn no_cut_and_no_single_wrong_byte_panics() {
        let mut out = Vec::new();
        let syn = Segment { flags: flags::SYN, mss: Some(9), payload: b"z", ..Segment::default() };
        put_tcp(&mut out, US, THEM, path(), &syn);
        for cut in 0..out.len() {
            let _ = parse(&out[..cut]);
        }
        for at in 0..out.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut wrong = out.clone();
                wrong[at] = value;
                let _ = parse(&wrong);
            }
        }
    }
}
