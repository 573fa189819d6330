//! Segments behind extension headers of IPv6 (RFC 8200 §4), which are dropped.

use std::net::Ipv6Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv6Packet, Ipv6Repr, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber as Number,
};

use super::hand::SERVED;
use super::{CLIENT_MAC, LISTENER, PORT, Queue, SERVER_MAC, milliseconds, server};
use crate::stack::Received;
use crate::stack::smoltcp::tcp::Tcp;

const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const TCP: u8 = 6;

/// A segment behind headers of these kinds, which are padding.
fn frame(kinds: &[u8], sequence: u32, acknowledged: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: 40_000,
        dst_port: PORT,
        control: if acknowledged.is_none() { TcpControl::Syn } else { TcpControl::None },
        seq_number: Number(sequence as i32),
        ack_number: acknowledged.map(|number| Number(number as i32)),
        window_len: 8000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload,
    };
    let ends = (IpAddress::from(CLIENT), IpAddress::from(OWN));
    let mut segment = vec![0; repr.buffer_len()];
    let mut packet = TcpPacket::new_unchecked(&mut segment);
    repr.emit(&mut packet, &ends.0, &ends.1, &ChecksumCapabilities::default());
    let kind = |at: usize| kinds.get(at).copied().unwrap_or(TCP);
    let behind = |at| [kind(at), 0, 1, 4, 0, 0, 0, 0];
    let headers: Vec<u8> = (1..=kinds.len()).flat_map(behind).collect();
    let ip = Ipv6Repr {
        src_addr: CLIENT,
        dst_addr: OWN,
        next_header: IpProtocol::from(kind(0)),
        payload_len: headers.len() + segment.len(),
        hop_limit: 64,
    };
    let mut fixed = [0; 40];
    ip.emit(&mut Ipv6Packet::new_unchecked(&mut fixed[..]));
    [&SERVER_MAC[..], &CLIENT_MAC, &[0x86, 0xdd], &fixed, &headers, &segment].concat()
}

fn says(tcp: &mut Tcp, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
    let mut queue = Queue::default();
    tcp.frame(milliseconds(1), &mut frame, &mut queue);
    tcp.flush(milliseconds(1), &mut queue);
    queue.frames
}

#[test]
fn a_segment_behind_extension_headers_neither_opens_nor_resets_a_connection() {
    const KINDS: [&[u8]; 5] = [&[0], &[60], &[0, 60], &[43], &[44]];
    let mut tcp = server();
    for kinds in KINDS {
        assert!(says(&mut tcp, frame(kinds, 10, None, b"")).is_empty(), "{kinds:?}");
    }
    let answer = says(&mut tcp, frame(&[], 10, None, b""));
    let theirs = TcpPacket::new_unchecked(&answer[0][54..]).seq_number().0 as u32;
    let theirs = theirs.wrapping_add(1);
    says(&mut tcp, frame(&[], 11, Some(theirs), b""));
    tcp.accept(milliseconds(1), LISTENER, SERVED).unwrap();
    for kinds in KINDS {
        let answer = says(&mut tcp, frame(kinds, 11, Some(theirs), b"behind"));
        assert!(answer.is_empty(), "{kinds:?}: {answer:?}");
    }
    says(&mut tcp, frame(&[], 11, Some(theirs), b"plain"));
    let mut buffer = [0; 9];
    assert_eq!(tcp.recv(milliseconds(1), SERVED, &mut buffer), Received::Bytes(5));
}
