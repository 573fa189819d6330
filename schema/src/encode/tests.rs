use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use capnp::message::{Builder, HeapAllocator};

use super::*;
use crate::{
    DATA_BYTES_MAX, DATA_OVERHEAD_BYTES, Hello, MESSAGE_BYTES_MIN, OPTION_VALUE_BYTES_MAX,
    OPTIONS_MAX, OptionAction, RequestId, SessionId, SocketId, SocketOption, TEXT_BYTES_MAX,
    decode, mqttshim_capnp as wire,
};

const V6: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST), 1883);

fn encoded(message: &Message<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut out = vec![0xff; 7];
    let outcome = encode(message, &mut out);
    assert_eq!(outcome.is_err(), out.is_empty(), "a refused message leaves nothing behind");
    outcome.map(|()| out)
}

/// What Cap'n Proto's own builder makes of a message.
fn built(fill: impl FnOnce(wire::message::Builder<'_>)) -> Vec<u8> {
    let mut builder = Builder::new(HeapAllocator::new().first_segment_words(16_384));
    fill(builder.init_root());
    capnp::serialize::write_message_to_words(&builder)
}

/// Accepted by both directions, and the same after both.
#[track_caller]
fn round_trip(message: &Message<'_>) {
    let bytes = encoded(message).expect("within the limits");
    assert_eq!(decode(&bytes).as_ref(), Ok(message));
}

fn hello(program: &str) -> Hello<'_> {
    Hello {
        version_min: 1,
        version_max: 1,
        max_message_bytes: 4080,
        window_bytes: 1,
        layout_min: 0,
        layout_max: 0,
        program,
    }
}

#[test]
fn stream_messages_are_what_the_builder_writes() {
    for length in (1..=17).chain([4000, 65_536]) {
        let bytes = vec![0xa5; length];
        let (stamp, read) = (u64::MAX - 1, 0x0102_0304_0506_0708);
        let expected = built(|root| {
            let mut to = root.init_data();
            to.set_socket(0xdead_beef);
            to.set_stamp(stamp);
            to.set_read(read);
            to.set_bytes(&bytes);
        });
        let message = Message::Data { socket: SocketId(0xdead_beef), stamp, read, bytes: &bytes };
        assert!(encoded(&message) == Ok(expected), "{length} bytes");
    }
    let expected = built(|root| {
        let mut to = root.init_credit();
        to.set_socket(3);
        to.set_bytes(u32::MAX);
    });
    assert_eq!(encoded(&Message::Credit { socket: SocketId(3), bytes: u32::MAX }), Ok(expected));
    let expected = built(|root| {
        let mut to = root.init_blocked();
        to.set_socket(u32::MAX);
        to.set_stamp(9);
    });
    assert_eq!(encoded(&Message::Blocked { socket: SocketId(u32::MAX), stamp: 9 }), Ok(expected));
}

#[test]
fn data_overhead_suffices_for_a_message_of_every_size() {
    for limit in (MESSAGE_BYTES_MIN..MESSAGE_BYTES_MIN + 9).chain([4080, 65_536, MESSAGE_BYTES_MAX])
    {
        let bytes = vec![1; limit - DATA_OVERHEAD_BYTES];
        let message = Message::Data { socket: SocketId(1), stamp: 1, read: 0, bytes: &bytes };
        assert!(encoded(&message).expect("fits").len() <= limit, "limit {limit}");
        round_trip(&message);
    }
}

#[test]
fn the_longest_data_passes_and_one_byte_more_is_refused() {
    let bytes = vec![7; DATA_BYTES_MAX + 1];
    let data = |bytes| Message::Data { socket: SocketId(1), stamp: 1, read: 1, bytes };
    round_trip(&data(&bytes[1..]));
    assert_eq!(encoded(&data(&bytes)), Err(Violation::Data { bytes: DATA_BYTES_MAX + 1 }.into()));
}

#[test]
fn the_longest_text_passes_and_one_byte_more_is_refused() {
    let longest = "p".repeat(TEXT_BYTES_MAX);
    let longer = "p".repeat(TEXT_BYTES_MAX + 1);
    let messages = |text| {
        [
            ("program", Message::Hello(hello(text))),
            ("placeholder", listen(text)),
            ("detail", notice(text)),
        ]
    };
    for (_, message) in messages(&longest) {
        round_trip(&message);
    }
    for (field, message) in messages(&longer) {
        let violation = Violation::Text { field, bytes: TEXT_BYTES_MAX + 1 };
        assert_eq!(encoded(&message), Err(violation.into()));
    }
}

fn listen(placeholder: &str) -> Message<'_> {
    let (request, socket) = (RequestId(1), SocketId(1));
    Message::Listen { request, socket, backlog: 100, placeholder, options: vec![] }
}

fn notice(detail: &str) -> Message<'_> {
    let what = crate::Notice::ListenerOutside;
    Message::Notice { session: SessionId(1), stamp: 1, what, detail }
}

#[test]
fn the_longest_option_value_passes_and_one_byte_more_is_refused() {
    let (longest, longer) = ([9; OPTION_VALUE_BYTES_MAX], [9; OPTION_VALUE_BYTES_MAX + 1]);
    let messages = |value| {
        [
            bind(vec![SocketOption { level: 1, name: 2, value }]),
            Message::Option {
                request: RequestId(1),
                socket: SocketId(1),
                level: 6,
                name: 1,
                action: OptionAction::Set(value),
            },
            Message::Reply { request: RequestId(1), errno: 0, address: V6, value },
        ]
    };
    messages(&longest).iter().for_each(round_trip);
    for message in messages(&longer) {
        let violation = Violation::OptionValue { bytes: OPTION_VALUE_BYTES_MAX + 1 };
        assert_eq!(encoded(&message), Err(violation.into()));
    }
}

fn bind(options: Vec<SocketOption<'_>>) -> Message<'_> {
    let (request, session, socket) = (RequestId(1), SessionId(1), SocketId(1));
    Message::Bind { request, session, socket, uid: 1000, address: V6, options }
}

#[test]
fn the_most_and_largest_options_pass_and_one_more_is_refused() {
    let value = [9; OPTION_VALUE_BYTES_MAX];
    let option = SocketOption { level: i32::MIN, name: i32::MAX, value: &value };
    round_trip(&bind(vec![option; OPTIONS_MAX]));
    assert_eq!(
        encoded(&bind(vec![option; OPTIONS_MAX + 1])),
        Err(Violation::Options { count: OPTIONS_MAX + 1 }.into())
    );
}

#[test]
fn data_and_credit_carry_at_least_one_byte() {
    let socket = SocketId(1);
    round_trip(&Message::Data { socket, stamp: 0, read: 0, bytes: b"x" });
    round_trip(&Message::Credit { socket, bytes: 1 });
    let empty = Message::Data { socket, stamp: 0, read: 0, bytes: b"" };
    assert_eq!(encoded(&empty), Err(Violation::EmptyData.into()));
    let nothing = Message::Credit { socket, bytes: 0 };
    assert_eq!(encoded(&nothing), Err(Violation::ZeroCredit.into()));
}

#[test]
fn a_hello_has_ranges_a_window_and_a_message_size_within_the_limits() {
    let good = hello("agent");
    for bytes in [MESSAGE_BYTES_MIN as u32, MESSAGE_BYTES_MAX as u32] {
        round_trip(&Message::Hello(Hello { max_message_bytes: bytes, ..good.clone() }));
    }
    let refused = [
        (
            Hello { max_message_bytes: MESSAGE_BYTES_MIN as u32 - 1, ..good.clone() },
            Violation::MessageBytes { bytes: MESSAGE_BYTES_MIN as u32 - 1 },
        ),
        (
            Hello { max_message_bytes: MESSAGE_BYTES_MAX as u32 + 1, ..good.clone() },
            Violation::MessageBytes { bytes: MESSAGE_BYTES_MAX as u32 + 1 },
        ),
        (Hello { window_bytes: 0, ..good.clone() }, Violation::ZeroWindow),
        (Hello { version_min: 0, ..good.clone() }, Violation::Versions { min: 0, max: 1 }),
        (Hello { version_min: 2, ..good.clone() }, Violation::Versions { min: 2, max: 1 }),
        (Hello { layout_min: 1, ..good }, Violation::Layouts { min: 1, max: 0 }),
    ];
    for (hello, violation) in refused {
        assert_eq!(encoded(&Message::Hello(hello)), Err(violation.into()));
    }
}

#[test]
fn addresses_keep_family_scope_and_flow() {
    let addresses: [SocketAddr; 4] = [
        (Ipv4Addr::BROADCAST, 65_535).into(),
        (Ipv4Addr::UNSPECIFIED, 0).into(),
        "[::ffff:192.0.2.1]:1883".parse().expect("an address"),
        std::net::SocketAddrV6::new(Ipv6Addr::from_bits(u128::MAX), 1, 0xf_ffff, 42).into(),
    ];
    for address in addresses {
        round_trip(&Message::Accepted {
            listener: SocketId(1),
            socket: SocketId(2),
            local: address,
            peer: V6,
        });
    }
}
