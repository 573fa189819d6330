//! Routers that tell of packets that did not arrive, and others that say they are routers.

use std::io::IoSlice;
use std::net::Ipv4Addr;

use rustix::io::Errno;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv4Packet, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket};

use super::hand::{Hand, SERVED, said};
use super::{CLIENT_MAC, Queue, SERVER_MAC, at, milliseconds, stack};
use crate::stack::smoltcp::tcp::Tcp;
use crate::stack::{Event, Key, Received};

const IP_BYTES: usize = 20;
const CLIENT: Key = Key(1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// "Fragmentation needed", quoting the beginning of a packet (RFC 1191 §4).
pub(super) fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    by_router(packet, OWN, [3, 4], mtu)
}

/// Type and code of ICMP, quoting the beginning of a packet (RFC 792).
fn by_router(packet: &[u8], own: Ipv4Addr, kind: [u8; 2], mtu: u16) -> Vec<u8> {
    let quote = &packet[..IP_BYTES + 8];
    let ip = Ipv4Repr {
        src_addr: ROUTER,
        dst_addr: own,
        next_header: IpProtocol::Icmp,
        payload_len: 8 + quote.len(),
        hop_limit: 64,
    };
    let mut frame = vec![0; 14 + ip.buffer_len() + ip.payload_len];
    frame[..6].copy_from_slice(&SERVER_MAC);
    frame[6..12].copy_from_slice(&CLIENT_MAC);
    frame[12] = 8;
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    ip.emit(&mut packet, &ChecksumCapabilities::default());
    let message = packet.payload_mut();
    message[..2].copy_from_slice(&kind);
    message[6..8].copy_from_slice(&mtu.to_be_bytes());
    message[8..].copy_from_slice(quote);
    Icmpv4Packet::new_unchecked(message).fill_checksum();
    frame
}

/// A connection with 4,000 bytes on their way; the packets they are in.
fn sender() -> (Hand, Vec<Vec<u8>>) {
    let mut hand = Hand::new();
    hand.connects(1000);
    let mut queue = Queue::default();
    let bytes = [7; 4000];
    hand.tcp.send(hand.now, SERVED, &[IoSlice::new(&bytes)], &mut queue);
    hand.tcp.flush(hand.now, &mut queue);
    let packets = queue.frames.iter().map(|frame| frame[14..].to_vec()).collect();
    (hand, packets)
}

fn tell(hand: &mut Hand, frame: &mut [u8]) {
    let mut queue = Queue::default();
    hand.tcp.frame(hand.now, frame, &mut queue);
    assert!(queue.frames.is_empty());
}

/// The longest segment of all that is sent again, once nothing that was sent before has come through.
fn longest_later(hand: &mut Hand) -> usize {
    let first = hand.theirs.wrapping_add(1);
    let (mut longest, mut known) = (0, first);
    for _ in 0..20 {
        let mut heard = hand.waits(milliseconds(1000));
        if known != first {
            heard.extend(hand.says(said("A", 1001, known, b"")));
        }
        for heard in heard {
            longest = longest.max(heard.payload.len());
            known = known.max(heard.sequence.wrapping_add(heard.payload.len() as u32));
        }
    }
    assert_eq!(known, first.wrapping_add(4000));
    longest
}

#[test]
fn segments_are_as_short_as_a_router_wants_them() {
    for (told, segment_bytes) in [(1000, 960), (0, 1452), (100, 512)] {
        let (mut hand, packets) = sender();
        assert_eq!(packets[0].len(), 1500);
        tell(&mut hand, &mut too_big(&packets[1], told));
        assert_eq!(longest_later(&mut hand), segment_bytes, "told {told}");
    }
}

#[test]
fn a_tale_that_quotes_nothing_on_its_way_changes_nothing() {
    let (mut hand, packets) = sender();
    let with_number = |change: usize, is_earlier: bool| {
        let mut packet = packets[0].clone();
        let mut segment = TcpPacket::new_unchecked(&mut packet[IP_BYTES..]);
        let number = segment.seq_number();
        segment.set_seq_number(if is_earlier { number - change } else { number + change });
        packet
    };
    // Acknowledged already; never sent; of another connection.
    let mut other = packets[0].clone();
    other[IP_BYTES + 2] ^= 1;
    for packet in [with_number(1, true), with_number(4000, false), other] {
        tell(&mut hand, &mut too_big(&packet, 1000));
    }
    // Spoilt on its way; less than any way carries.
    let mut spoilt = too_big(&packets[0], 1000);
    *spoilt.last_mut().unwrap() ^= 1;
    tell(&mut hand, &mut spoilt);
    tell(&mut hand, &mut too_big(&packets[0], 60));
    assert_eq!(longest_later(&mut hand), 1460);
}

/// A connect of the card's under way, and the SYN that left.
fn connecting() -> (Tcp, Vec<u8>) {
    let mut tcp = stack(SERVER_MAC, &["10.0.0.1/24"]);
    tcp.connect(milliseconds(0), CLIENT, 0, at("10.0.0.7", 8883), &[]).unwrap();
    let mut queue = Queue::default();
    tcp.flush(milliseconds(0), &mut queue);
    tcp.frame(milliseconds(1), &mut answer_to_arp(), &mut queue);
    queue.frames.clear();
    tcp.flush(milliseconds(1), &mut queue);
    let packet = queue.frames[0][14..].to_vec();
    assert!(TcpPacket::new_unchecked(&packet[IP_BYTES..]).syn());
    (tcp, packet)
}

/// 10.0.0.7 is at the client's.
fn answer_to_arp() -> Vec<u8> {
    let head = [&SERVER_MAC[..], &CLIENT_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
    [&head[..], &CLIENT_MAC, &[10, 0, 0, 7], &SERVER_MAC, &OWN.octets()].concat()
}

#[test]
fn a_connect_ends_when_a_router_says_that_nobody_is_there() {
    for (kind, told) in [
        ([3, 0], Errno::NETUNREACH),
        ([3, 1], Errno::HOSTUNREACH),
        ([3, 3], Errno::CONNREFUSED),
        ([3, 13], Errno::HOSTUNREACH),
        ([11, 0], Errno::HOSTUNREACH),
    ] {
        let (mut tcp, packet) = connecting();
        tcp.events.clear();
        let mut queue = Queue::default();
        tcp.frame(milliseconds(2), &mut by_router(&packet, OWN, kind, 0), &mut queue);
        let is_news = |it: &Event| matches!(it, Event::Socket { key: CLIENT, writable: true, .. });
        assert!(tcp.events.iter().any(is_news), "{kind:?}");
        assert_eq!(tcp.connect_result(CLIENT), Some(Err(told)), "{kind:?}");
        assert_eq!(tcp.connections.len(), 0);
    }
}

#[test]
fn who_does_not_quote_the_syn_ends_no_connect_and_nobody_a_connection() {
    let (mut tcp, mut packet) = connecting();
    let mut queue = Queue::default();
    for wrong in [[3, 5], [4, 0], [12, 0]] {
        tcp.frame(milliseconds(2), &mut by_router(&packet, OWN, wrong, 0), &mut queue);
    }
    let mut segment = TcpPacket::new_unchecked(&mut packet[IP_BYTES..]);
    let number = segment.seq_number();
    segment.set_seq_number(number + 1);
    tcp.frame(milliseconds(2), &mut by_router(&packet, OWN, [3, 3], 0), &mut queue);
    assert_eq!(tcp.connect_result(CLIENT), None);
    // What may pass ends nothing that has begun (MUST-56).
    let (mut hand, packets) = sender();
    for code in 0..16 {
        tell(&mut hand, &mut by_router(&packets[0], OWN, [3, code], 1400));
    }
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
}
