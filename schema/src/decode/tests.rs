use capnp::message::{Builder, HeapAllocator};

use super::*;
use crate::{
    DATA_BYTES_MAX, OPTION_VALUE_BYTES_MAX, OPTIONS_MAX, SocketId, TEXT_BYTES_MAX, Violation,
    encode, mqttshim_capnp as wire,
};

/// A message as a peer that keeps no rules may build it.
fn foreign(fill: impl FnOnce(wire::message::Builder<'_>)) -> Vec<u8> {
    let mut builder = Builder::new(HeapAllocator::new().first_segment_words(16_384));
    fill(builder.init_root());
    let bytes = capnp::serialize::write_message_to_words(&builder);
    assert_eq!(bytes[..4], [0; 4], "one segment");
    bytes
}

fn data(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&Message::Data { socket: SocketId(5), stamp: 6, read: 7, bytes }, &mut out)
        .expect("within the limits");
    out
}

/// `bytes` with its union member or another 16-bit number replaced.
fn patched(mut bytes: Vec<u8>, at: usize, number: u16) -> Vec<u8> {
    bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Header and root pointer come before the number of the union's member.
const MEMBER_AT: usize = 16;

#[test]
fn a_message_may_start_at_any_address() {
    let message = data(b"payload");
    for shift in 0..8 {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(&message);
        let decoded = decode(&shifted[shift..]);
        let expected = Message::Data { socket: SocketId(5), stamp: 6, read: 7, bytes: b"payload" };
        assert_eq!(decoded, Ok(expected), "shifted by {shift}");
    }
}

#[test]
fn bytes_of_a_stream_are_borrowed_from_the_input() {
    let message = data(b"payload");
    let Ok(Message::Data { bytes, .. }) = decode(&message) else { panic!("not Data") };
    assert!(message.as_ptr_range().contains(&bytes.as_ptr()));
}

#[test]
fn every_shorter_prefix_is_truncated() {
    let message = data(b"payload");
    for got in 0..message.len() {
        let needed = if got < HEADER_BYTES { HEADER_BYTES } else { message.len() };
        assert_eq!(decode(&message[..got]), Err(DecodeError::Truncated { needed, got }));
    }
}

#[test]
fn a_byte_more_than_the_header_says_is_refused() {
    let mut message = data(b"payload");
    let needed = message.len();
    message.push(0);
    assert_eq!(decode(&message), Err(DecodeError::Trailing { needed, got: needed + 1 }));
}

#[test]
fn a_second_segment_is_refused() {
    let mut message = data(b"payload");
    message[0] = 1;
    assert_eq!(decode(&message), Err(DecodeError::Segments { more: 1 }));
    message[..8].copy_from_slice(&[0xff; 8]);
    assert_eq!(decode(&message), Err(DecodeError::Segments { more: u32::MAX }));
}

#[test]
fn more_than_the_largest_message_is_refused_unread() {
    let bytes = MESSAGE_BYTES_MAX + 1;
    assert_eq!(decode(&vec![0; bytes]), Err(DecodeError::TooLarge { bytes }));
}

#[test]
fn an_empty_segment_is_a_hello_without_content() {
    // A null root pointer reads as the default Message, whose member 0 is an all-default Hello.
    let violation = Violation::Versions { min: 0, max: 0 };
    assert_eq!(decode(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(violation.into()));
    assert!(matches!(decode(&[0; 8]), Err(DecodeError::Malformed(_))));
}

#[test]
fn a_member_of_a_newer_version_is_named_and_may_be_skipped() {
    // The first free number of the union: raise it with the schema, and add a golden message.
    for number in [18, u16::MAX] {
        let error = decode(&patched(data(b"x"), MEMBER_AT, number)).expect_err("unknown");
        assert_eq!(error, DecodeError::Unknown(number));
        assert!(error.is_skippable());
    }
    assert_ne!(decode(&patched(data(b"x"), MEMBER_AT, 17)), Err(DecodeError::Unknown(17)));
}

#[test]
fn a_notice_of_a_newer_version_is_named_and_may_be_skipped() {
    let notice = foreign(|root| root.init_notice().set_session(1));
    // Member's data: session (4 bytes), then the notice's number.
    let error = decode(&patched(notice, MEMBER_AT + 16 + 4, 7)).expect_err("unknown");
    assert_eq!(error, DecodeError::UnknownNotice(7));
    assert!(error.is_skippable());
}

#[test]
fn an_unknown_half_or_option_action_is_a_violation() {
    let shutdown = foreign(|root| root.init_shutdown().set_socket(1));
    let error = decode(&patched(shutdown, MEMBER_AT + 16 + 4, 3)).expect_err("unknown");
    assert_eq!(error, DecodeError::UnknownHow(3));
    assert!(!error.is_skippable());

    let option = foreign(|root| root.init_option().set_get(4));
    let error = decode(&patched(option, MEMBER_AT + 16 + 20, 2)).expect_err("unknown");
    assert_eq!(error, DecodeError::UnknownOptionAction(2));
}

#[test]
fn an_address_is_ipv4_or_ipv6() {
    let reply = |fill: &dyn Fn(wire::address::Builder<'_>)| {
        foreign(|root| fill(root.init_reply().init_address()))
    };
    for family in [0, 5, 10] {
        assert_eq!(
            decode(&reply(&|mut address| address.set_family(family))),
            Err(DecodeError::AddressFamily { field: "address", family })
        );
    }
    let absent = foreign(|root| root.init_accepted().set_socket(2));
    assert_eq!(decode(&absent), Err(DecodeError::AddressFamily { field: "local", family: 0 }));
}

#[test]
fn an_ipv4_address_has_32_bits_and_no_scope() {
    type Fill = fn(&mut wire::address::Builder<'_>);
    let spoilers: [Fill; 4] = [
        |address| address.set_low(1 << 32),
        |address| address.set_high(1),
        |address| address.set_scope(1),
        |address| address.set_flow(1),
    ];
    for spoil in spoilers {
        let message = foreign(|root| {
            let mut address = root.init_reply().init_address();
            address.set_family(4);
            spoil(&mut address);
        });
        assert_eq!(decode(&message), Err(DecodeError::AddressBits { field: "address" }));
    }
}

#[test]
fn text_has_to_be_utf8() {
    let mut message = foreign(|root| root.init_notice().set_detail("ab"));
    let at = message.windows(2).position(|pair| pair == b"ab").expect("the text");
    message[at + 1] = 0xff;
    assert_eq!(decode(&message), Err(DecodeError::NotUtf8 { field: "detail", at: 1 }));
}

#[test]
fn text_longer_than_the_limit_is_refused() {
    let message = foreign(|root| root.init_notice().set_detail("x".repeat(TEXT_BYTES_MAX + 1)));
    let violation = Violation::Text { field: "detail", bytes: TEXT_BYTES_MAX + 1 };
    assert_eq!(decode(&message), Err(violation.into()));
}

#[test]
fn an_option_value_longer_than_the_limit_is_refused() {
    let value = [0; OPTION_VALUE_BYTES_MAX + 1];
    let violation = Violation::OptionValue { bytes: value.len() };
    let set = foreign(|root| root.init_option().set_set(&value));
    assert_eq!(decode(&set), Err(violation.into()));
    let listen = foreign(|root| root.init_listen().init_options(1).get(0).set_value(&value));
    assert_eq!(decode(&listen), Err(violation.into()));
}

#[test]
fn more_options_than_the_limit_are_refused_before_room_is_made_for_them() {
    for count in [OPTIONS_MAX + 1, 3000] {
        let message = foreign(|root| {
            root.init_listen().init_options(count as u32);
        });
        assert_eq!(decode(&message), Err(Violation::Options { count }.into()));
    }
}

#[test]
fn more_bytes_of_a_stream_than_the_limit_are_refused() {
    // What the overhead leaves room for beyond the limit.
    let bytes = vec![1; DATA_BYTES_MAX + 1];
    let message = foreign(|root| root.init_data().set_bytes(&bytes));
    assert!(message.len() <= MESSAGE_BYTES_MAX);
    assert_eq!(decode(&message), Err(Violation::Data { bytes: bytes.len() }.into()));
}

#[test]
fn empty_data_and_zero_credit_are_refused() {
    let empty = foreign(|root| root.init_data().set_bytes(&[]));
    assert_eq!(decode(&empty), Err(Violation::EmptyData.into()));
    let absent = foreign(|root| root.init_data().set_socket(1));
    assert_eq!(decode(&absent), Err(Violation::EmptyData.into()));
    let zero = foreign(|root| root.init_credit().set_socket(1));
    assert_eq!(decode(&zero), Err(Violation::ZeroCredit.into()));
}

#[test]
fn a_pointer_out_of_the_segment_is_malformed() {
    let mut message = data(b"payload");
    // The list pointer of `bytes` is the seventh word of the segment: make the list longer than the message.
    let list_length_at = HEADER_BYTES + 6 * 8 + 4;
    message[list_length_at + 1] = 0xff;
    assert!(matches!(decode(&message), Err(DecodeError::Malformed(_))));
}

#[test]
fn options_that_share_one_value_are_read_only_as_often_as_the_message_is_long() {
    // Thirty-two pointers to the same 512 bytes: sixteen kilobytes of reading in a message of two.
    let value = [3; OPTION_VALUE_BYTES_MAX];
    let mut message = foreign(|root| {
        let mut options = root.init_listen().init_options(OPTIONS_MAX as u32);
        options.reborrow().get(0).set_value(&value);
    });
    let first = message
        .chunks_exact(8)
        .rposition(|word| word == (1u64 | 2 << 32 | 512 << 35 | first_offset(word)).to_le_bytes())
        .expect("the first option's pointer");
    for entry in 1..OPTIONS_MAX {
        let at = first + 2 * entry;
        let offset = first_offset(&message[first * 8..]) >> 2;
        let pointer = 1u64 | (offset - 2 * entry as u64) << 2 | 2 << 32 | 512 << 35;
        message[at * 8..at * 8 + 8].copy_from_slice(&pointer.to_le_bytes());
    }
    assert_eq!(decode(&message), Err(DecodeError::Malformed(capnp::ErrorKind::ReadLimitExceeded)));
}

/// The offset bits of a pointer word.
fn first_offset(word: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes(word[..4].try_into().expect("four bytes")) & !3)
}
