//! ARP, neighbour discovery, pings, and where a connection of the card's own goes.

use mqttshim_port::{Mac, Transmit};
use rustix::io::Errno;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Ipv4Address};

use super::hand::{frame, said};
use super::wire::{Faults, Wire};
use super::{CLIENT_MAC, PORT, Queue, SERVER_MAC, at, ip, milliseconds, server, stack};
use crate::stack::{End, Event, Key};

const CLIENT: Key = Key(1);

fn arp(operation: ArpOperation, asked: [u8; 4]) -> Vec<u8> {
    arp_of(operation, (CLIENT_MAC, [10, 0, 0, 2]), ([0; 6], asked))
}

/// To all.
pub(super) fn arp_of(
    operation: ArpOperation,
    source: (Mac, [u8; 4]),
    target: (Mac, [u8; 4]),
) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(source.0),
        source_protocol_addr: Ipv4Address::from(source.1),
        target_hardware_addr: EthernetAddress(target.0),
        target_protocol_addr: Ipv4Address::from(target.1),
    };
    let mut frame = vec![0; 14 + 28];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&source.0);
    frame[12..14].copy_from_slice(&[8, 6]);
    repr.emit(&mut ArpPacket::new_unchecked(&mut frame[14..]));
    frame
}

#[test]
fn who_asks_for_the_card_is_answered_and_nobody_else() {
    let mut tcp = server();
    let mut queue = Queue::default();
    tcp.frame(milliseconds(0), &mut arp(ArpOperation::Request, [10, 0, 0, 1]), &mut queue);
    let [answer] = &queue.frames[..] else { panic!("{queue:?}") };
    assert_eq!((&answer[..6], &answer[6..12]), (&CLIENT_MAC[..], &SERVER_MAC[..]));
    let answer = ArpRepr::parse(&ArpPacket::new_checked(&answer[14..]).unwrap()).unwrap();
    assert!(
        matches!(answer, ArpRepr::EthernetIpv4 { operation: ArpOperation::Reply, source_hardware_addr, .. }
        if source_hardware_addr.0 == SERVER_MAC)
    );
    let mut queue = Queue::default();
    tcp.frame(milliseconds(0), &mut arp(ArpOperation::Request, [10, 0, 0, 3]), &mut queue);
    assert!(queue.frames.is_empty());
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable_after_three_questions() {
    for address in ["10.0.0.99", "fd00::99"] {
        let mut tcp = stack(CLIENT_MAC, &["10.0.0.2/24", "fd00::2/64"]);
        tcp.connect(milliseconds(0), CLIENT, 0, at(address, PORT), &[]).unwrap();
        let mut queue = Queue::default();
        for second in 0..4 {
            tcp.flush(milliseconds(second * 1000), &mut queue);
        }
        assert_eq!(queue.frames.len(), 3);
        assert!(
            tcp.events
                .iter()
                .any(|event| matches!(event, Event::Socket { key: CLIENT, writable: true, .. }))
        );
        let result = tcp.connect_result(CLIENT);
        assert_eq!(result, Some(Err(Errno::HOSTUNREACH)));
        assert_eq!(tcp.connections.len(), 0);
    }
}

#[test]
fn a_connect_that_is_given_up_before_its_neighbour_is_known_leaves_nothing() {
    let mut tcp = stack(CLIENT_MAC, &["10.0.0.2/24"]);
    tcp.connect(milliseconds(0), CLIENT, 0, at("10.0.0.99", PORT), &[]).unwrap();
    tcp.flush(milliseconds(0), &mut Queue::default());
    tcp.close(CLIENT, End::Close);
    tcp.flush(milliseconds(1), &mut Queue::default());
    assert_eq!(tcp.connections.len(), 0);
}

#[test]
fn what_is_beyond_the_link_needs_a_gateway() {
    let mut tcp = stack(CLIENT_MAC, &["10.0.0.2/24"]);
    let refused = tcp.connect(milliseconds(0), CLIENT, 0, at("192.0.2.1", PORT), &[]);
    assert_eq!(refused, Err(Errno::NETUNREACH));
    assert_eq!(tcp.link.next_hop(ip("10.0.0.77")), Some(ip("10.0.0.77")));
}

#[test]
fn a_refused_connect_says_so() {
    let mut wire = Wire::new(Faults::default(), 1);
    wire.ends[0].connect(wire.now, CLIENT, 0, at("10.0.0.1", PORT + 1), &[]).unwrap();
    while wire.ends[0].connect_result(CLIENT).is_none() {
        wire.settle();
        if let Some(result) = wire.ends[0].connect_result(CLIENT) {
            assert_eq!(result, Err(Errno::CONNREFUSED));
            return;
        }
        assert!(wire.sleep());
    }
}

#[test]
fn nobody_connects_to_many_at_once() {
    let mut tcp = stack(CLIENT_MAC, &["10.0.0.2/24", "fd00::2/64"]);
    for many in ["10.0.0.255", "255.255.255.255", "224.0.0.1", "ff02::1"] {
        let refused = tcp.connect(milliseconds(0), CLIENT, 0, at(many, PORT), &[]);
        assert_eq!(refused, Err(Errno::NETUNREACH), "{many}");
    }
    assert!(tcp.connect(milliseconds(0), CLIENT, 0, at("10.0.0.254", PORT), &[]).is_ok());
}

/// A port that takes nothing.
struct Full;

impl Transmit for Full {
    fn has_room(&mut self) -> bool {
        false
    }

    fn frame<R>(&mut self, length: usize, _: impl FnOnce(&mut [u8]) -> R) -> R {
        panic!("{length} bytes, and there is no room")
    }

    fn kick(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

#[test]
fn answers_that_a_full_port_does_not_take_are_counted_and_what_can_wait_is_not() {
    let mut tcp = server();
    let from = at("10.0.0.7", 40_000);
    let mut nobody_s = frame(from, 8000, said("A", 1, 2, b""));
    tcp.frame(milliseconds(1), &mut nobody_s, &mut Full);
    assert_eq!(tcp.unsent, 1);
    tcp.frame(milliseconds(1), &mut frame(from, 8000, said("S", 1, 0, b"")), &mut Full);
    tcp.flush(milliseconds(1), &mut Full);
    assert_eq!(tcp.unsent, 1);
    let mut queue = Queue::default();
    tcp.flush(milliseconds(2), &mut queue);
    assert_eq!(queue.frames.len(), 1, "the answer to the SYN");
}
