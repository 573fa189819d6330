//! The framer's promises: every byte comes out once, however it arrived.

use proptest::prelude::*;

use super::*;
use crate::mqtt::packet::PacketType;

/// PUBLISHes stream if their flags are not zero, CONNACKs are refused, all else is wanted whole.
fn handling(header: &FixedHeader) -> Handling {
    match header.packet_type {
        PacketType::Publish if header.flags != 0 => Handling::Stream,
        PacketType::Connack => Handling::Refuse(Malformed::Type(2)),
        _ => Handling::Whole,
    }
}

/// What came out, with streamed packets and raw bytes put together again.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Packet(Vec<u8>),
    Streamed(Vec<u8>),
    Malformed(Malformed),
    Raw(Vec<u8>),
}

fn cut(framer: &mut Framer, input: &[u8], seen: &mut Vec<Seen>) {
    cut_and(framer, input, seen, false);
}

/// `goes_on`: behind a refusal the framer is told to go on.
fn cut_and(framer: &mut Framer, mut input: &[u8], seen: &mut Vec<Seen>, goes_on: bool) {
    while let Some(piece) = framer.next(&mut input, handling) {
        match piece {
            Piece::Packet { bytes, .. } => seen.push(Seen::Packet(bytes.to_vec())),
            Piece::Start { bytes, .. } => seen.push(Seen::Streamed(bytes.to_vec())),
            Piece::Part { bytes, .. } => match seen.last_mut() {
                Some(Seen::Streamed(all)) => all.extend(bytes),
                // Of one that breaks the rules.
                _ if goes_on => seen.push(Seen::Streamed(bytes.to_vec())),
                other => panic!("part behind {other:?}"),
            },
            Piece::Malformed { held, error } => {
                seen.push(Seen::Malformed(error));
                seen.push(Seen::Raw(held.to_vec()));
                if goes_on {
                    framer.go_on();
                }
            }
            Piece::Raw(bytes) => match seen.last_mut() {
                Some(Seen::Raw(all)) => all.extend(bytes),
                // The end of its header turned out to be none.
                _ if goes_on => seen.push(Seen::Raw(bytes.to_vec())),
                other => panic!("raw behind {other:?}"),
            },
        }
    }
    assert!(input.is_empty());
}

fn bytes_of(seen: &[Seen]) -> Vec<u8> {
    let mut all = Vec::new();
    for item in seen {
        match item {
            Seen::Packet(bytes) | Seen::Streamed(bytes) | Seen::Raw(bytes) => all.extend(bytes),
            Seen::Malformed(_) => {}
        }
    }
    all
}

#[test]
fn a_packet_that_arrives_whole_is_borrowed() {
    let stream = b"\x30\x02\x00\x01\xC0\x00".to_vec();
    let mut input = &stream[..];
    let mut framer = Framer::new();
    let Some(Piece::Packet { bytes, .. }) = framer.next(&mut input, handling) else { panic!() };
    assert!(std::ptr::eq(bytes.as_ptr(), stream.as_ptr()));
    assert_eq!(input, b"\xC0\x00");
}

#[test]
fn a_split_packet_is_delivered_once_it_is_complete() {
    let mut framer = Framer::new();
    let mut seen = Vec::new();
    for part in [&b"\x30"[..], b"\x03", b"\x00\x01", b"t"] {
        assert!(seen.is_empty());
        cut(&mut framer, part, &mut seen);
    }
    assert_eq!(seen, [Seen::Packet(b"\x30\x03\x00\x01t".to_vec())]);
}

#[test]
fn a_streamed_packet_is_never_held_behind_its_header() {
    let mut framer = Framer::new();
    let mut input = &b"\x32\x05\x00"[..];
    assert!(matches!(
        framer.next(&mut input, handling),
        Some(Piece::Start { bytes: b"\x32\x05\x00", is_last: false, .. })
    ));
    let mut input = &b"\x01abc\xC0"[..];
    assert_eq!(
        framer.next(&mut input, handling),
        Some(Piece::Part { bytes: b"\x01abc", is_last: true })
    );
}

#[test]
fn an_empty_streamed_packet_ends_where_it_starts() {
    for split in [0, 1] {
        let mut framer = Framer::new();
        let (mut first, mut second) = b"\x31\x00".split_at(split);
        assert_eq!(framer.next(&mut first, handling), None);
        let piece = framer.next(&mut second, handling);
        assert!(matches!(piece, Some(Piece::Start { bytes: b"\x31\x00", is_last: true, .. })));
    }
}

#[test]
fn nothing_is_looked_at_after_a_refusal() {
    let mut framer = Framer::new();
    let mut seen = Vec::new();
    cut(&mut framer, b"\x20", &mut seen);
    cut(&mut framer, b"\x02\x00\x00\xC0\x00", &mut seen);
    assert_eq!(
        seen,
        [Seen::Malformed(Malformed::Type(2)), Seen::Raw(b"\x20\x02\x00\x00\xC0\x00".to_vec())]
    );
}

#[test]
fn who_goes_on_finds_the_packet_behind_one_that_breaks_the_rules() {
    // Refused by the caller; with reserved flags; with a length that is too long for its value, of none and of two bytes.
    let broken =
        [&b"\x20\x02\x00\x00"[..], b"\xF1\x00", b"\xC0\x80\x00", b"\x41\x82\x80\x00\xC0\x00"];
    for (packet, size) in broken.iter().flat_map(|packet| [(packet, 1), (packet, 100)]) {
        let mut framer = Framer::new();
        let mut seen = Vec::new();
        let stream = [packet, &b"\xC0\x00"[..], packet, b"\xC0\x00"].concat();
        stream.chunks(size).for_each(|chunk| cut_and(&mut framer, chunk, &mut seen, true));
        let whole = seen.iter().filter(|item| **item == Seen::Packet(b"\xC0\x00".to_vec()));
        assert_eq!(whole.count(), 2, "{seen:?}");
        assert_eq!(bytes_of(&seen), stream);
        assert!(framer.is_at_boundary());
    }
}

#[test]
fn nobody_goes_on_behind_what_has_no_end_or_after_giving_up() {
    for endless in [&b"\x00\x00"[..], b"\x30\xFF\xFF\xFF\xFF\x00", b"\xF1\x80\x80\x80\x80\x00"] {
        for size in [1, 100] {
            let mut framer = Framer::new();
            let mut seen = Vec::new();
            let stream = [endless, b"\xC0\x00"].concat();
            stream.chunks(size).for_each(|chunk| cut_and(&mut framer, chunk, &mut seen, true));
            assert!(!seen.iter().any(|item| matches!(item, Seen::Packet(_))), "{seen:?}");
            assert_eq!(bytes_of(&seen), stream);
        }
    }
    let mut framer = Framer::new();
    framer.give_up();
    framer.go_on();
    let mut input = &b"\xC0\x00"[..];
    assert_eq!(framer.next(&mut input, handling), Some(Piece::Raw(b"\xC0\x00")));
}

#[test]
fn giving_up_returns_what_was_held() {
    let mut framer = Framer::new();
    let mut seen = Vec::new();
    cut(&mut framer, b"\xC0\x00\x30\x09\x00", &mut seen);
    assert_eq!(framer.give_up(), b"\x30\x09\x00");
    assert_eq!(framer.give_up(), b"");
    seen.push(Seen::Raw(Vec::new()));
    cut(&mut framer, b"\xC0\x00", &mut seen);
    assert_eq!(seen.last(), Some(&Seen::Raw(b"\xC0\x00".to_vec())));
}

/// Packets of every type, some streamed, some split over several length bytes, and now and then garbage.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let packet = (
        prop::sample::select(vec![
            0x10_u8, 0x30, 0x31, 0x32, 0x3D, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0, 0xF0,
        ]),
        prop_oneof![4 => 0..8_usize, 1 => 120..140_usize, 1 => 16_380..16_390_usize],
    )
        .prop_map(|(first, len)| {
            let mut packet = vec![first];
            crate::mqtt::packet::put_variable_byte_integer(&mut packet, len);
            packet.resize(packet.len() + len, first);
            packet
        });
    let item = prop_oneof![12 => packet, 1 => prop::collection::vec(any::<u8>(), 1..6)];
    prop::collection::vec(item, 0..12).prop_map(|items| items.concat())
}

proptest! {
    #[test]
    fn any_split_of_a_stream_yields_the_same_packets(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut whole = Vec::new();
        let mut framer = Framer::new();
        cut(&mut framer, &stream, &mut whole);
        let mut all = bytes_of(&whole);
        all.extend(framer.give_up());
        prop_assert_eq!(&all, &stream);

        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let mut pieces = Vec::new();
        let mut framer = Framer::new();
        for pair in at.windows(2) {
            cut(&mut framer, &stream[pair[0]..pair[1]], &mut pieces);
        }
        let kinds = |seen: Vec<Seen>| -> Vec<Seen> {
            seen.into_iter().filter(|item| !matches!(item, Seen::Raw(raw) if raw.is_empty())).collect()
        };
        let held = framer.give_up();
        let mut all = bytes_of(&pieces);
        all.extend(held);
        prop_assert_eq!(&all, &stream);
        // A streamed packet at the end may have come out with less of it, but never differently.
        let (mut whole, mut pieces) = (kinds(whole), kinds(pieces));
        whole.retain(|item| matches!(item, Seen::Packet(_) | Seen::Malformed(_)));
        pieces.retain(|item| matches!(item, Seen::Packet(_) | Seen::Malformed(_)));
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn who_goes_on_finds_the_same_packets_in_any_split(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        is_told_before in any::<bool>(),
    ) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let found = [vec![0, stream.len()], at].map(|at| {
            let mut framer = Framer::new();
            if is_told_before {
                framer.go_on();
            }
            let mut seen = Vec::new();
            for pair in at.windows(2) {
                cut_and(&mut framer, &stream[pair[0]..pair[1]], &mut seen, true);
            }
            let mut all = bytes_of(&seen);
            all.extend(framer.give_up());
            assert_eq!(all, stream);
            seen.retain(|item| matches!(item, Seen::Packet(_) | Seen::Malformed(_)));
            seen
        });
        prop_assert_eq!(&found[0], &found[1]);
    }

    #[test]
    fn arbitrary_bytes_come_out_as_they_went_in(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)
    ) {
        let mut framer = Framer::new();
        let mut seen = Vec::new();
        for chunk in &chunks {
            cut(&mut framer, chunk, &mut seen);
        }
        let mut all = bytes_of(&seen);
        all.extend(framer.give_up());
        prop_assert_eq!(all, chunks.concat());
    }
}
