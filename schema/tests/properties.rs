//! For any message decode undoes encode, and no bytes whatever make decode panic.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use mqttshim_schema::{
    DATA_OVERHEAD_BYTES, Hello, How, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, Message, Notice,
    OPTION_VALUE_BYTES_MAX, OPTIONS_MAX, OptionAction, RequestId, SessionId, SocketId,
    SocketOption, decode, encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

mod samples;

/// What a message is made from; a message itself only borrows.
#[derive(Clone, Debug)]
struct Parts {
    member: u8,
    /// Three numbers: ids and the like.
    ids: [u32; 3],
    signed: [i32; 2],
    stamps: [u64; 2],
    addresses: [SocketAddr; 2],
    text: String,
    value: Vec<u8>,
    stream: Vec<u8>,
    options: Vec<(i32, i32, Vec<u8>)>,
    /// Selects among what has few values.
    choice: u8,
}

fn parts() -> impl Strategy<Value = Parts> {
    let variable = (
        "\\PC{0,64}",
        vec(any::<u8>(), 0..=OPTION_VALUE_BYTES_MAX),
        vec(any::<u8>(), 1..=4080 - DATA_OVERHEAD_BYTES),
        vec((any::<i32>(), any::<i32>(), vec(any::<u8>(), 0..40)), 0..=OPTIONS_MAX),
    );
    let numbers = (any::<[u32; 3]>(), any::<[i32; 2]>(), any::<[u64; 2]>());
    (0..18u8, any::<u8>(), numbers, [address(), address()], variable).prop_map(
        |(member, choice, (ids, signed, stamps), addresses, (text, value, stream, options))| {
            Parts { member, ids, signed, stamps, addresses, text, value, stream, options, choice }
        },
    )
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let parts = (any::<IpAddr>(), any::<u16>(), any::<u32>(), any::<u32>());
    parts.prop_map(|(ip, port, flow, scope)| match ip {
        IpAddr::V4(v4) => (v4, port).into(),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, flow, scope).into(),
    })
}

impl Parts {
    fn options(&self) -> Vec<SocketOption<'_>> {
        let options = self.options.iter();
        options
            .map(|(level, name, value)| SocketOption { level: *level, name: *name, value })
            .collect()
    }

    fn message(&self) -> Message<'_> {
        let (request, socket) = (RequestId(self.ids[0]), SocketId(self.ids[1]));
        let [stamp, read] = self.stamps;
        let [local, peer] = self.addresses;
        let errno = self.signed[0];
        match self.member {
            0 => Message::Hello(self.hello()),
            1 | 4 => self.bind_or_connect(),
            2 => Message::Listen {
                request,
                socket,
                backlog: errno,
                placeholder: &self.text,
                options: self.options(),
            },
            3 => Message::Accepted { listener: SocketId(self.ids[0]), socket, local, peer },
            5 => Message::Connected { socket, errno, local, peer },
            6 => Message::Data { socket, stamp, read, bytes: &self.stream },
            7 => Message::Eof { socket, stamp },
            8 => Message::Reset { socket, errno },
            9 => Message::Credit { socket, bytes: self.ids[0].max(1) },
            10 => Message::Blocked { socket, stamp },
            11 => {
                let how = [How::Read, How::Write, How::Both][usize::from(self.choice % 3)];
                Message::Shutdown { socket, stamp, how }
            }
            12 => Message::Close { socket, stamp, unread: self.choice % 2 == 1 },
            13 => self.option(),
            14 => self.notice(),
            15 => Message::Reply { request, errno, address: local, value: &self.value },
            16 => Message::Heartbeat { sequence: stamp },
            _ => Message::PolicyChanged { session: SessionId(self.ids[0]), stamp, epoch: read },
        }
    }

    fn hello(&self) -> Hello<'_> {
        let [a, b, c, d] = self.stamps[0].to_le_bytes().as_chunks::<2>().0[..] else {
            unreachable!("eight bytes are four pairs")
        };
        let [a, b, c, d] = [a, b, c, d].map(u16::from_le_bytes);
        let sizes = (MESSAGE_BYTES_MAX - MESSAGE_BYTES_MIN + 1) as u32;
        Hello {
            version_min: a.min(b).max(1),
            version_max: a.max(b).max(1),
            max_message_bytes: MESSAGE_BYTES_MIN as u32 + self.ids[0] % sizes,
            window_bytes: self.ids[1].max(1),
            layout_min: c.min(d),
            layout_max: c.max(d),
            program: &self.text,
        }
    }

    fn bind_or_connect(&self) -> Message<'_> {
        let [request, session, socket] = self.ids;
        let (request, session, socket) = (RequestId(request), SessionId(session), SocketId(socket));
        let (uid, address, options) = (self.ids[0], self.addresses[0], self.options());
        if self.member == 1 {
            Message::Bind { request, session, socket, uid, address, options }
        } else {
            Message::Connect { request, session, socket, uid, address, options }
        }
    }

    fn option(&self) -> Message<'_> {
        let action = match self.choice % 2 {
            0 => OptionAction::Get(self.ids[2]),
            _ => OptionAction::Set(&self.value),
        };
        let [level, name] = self.signed;
        let (request, socket) = (RequestId(self.ids[0]), SocketId(self.ids[1]));
        Message::Option { request, socket, level, name, action }
    }

    fn notice(&self) -> Message<'_> {
        let what = [
            Notice::SessionOpened,
            Notice::SessionEnded,
            Notice::ListenerOutside,
            Notice::ListenerOutsideGone,
            Notice::ConnectionOutside,
            Notice::ConnectionOutsideGone,
            Notice::LibraryLoaded,
        ][usize::from(self.choice % 7)];
        let (session, stamp) = (SessionId(self.ids[0]), self.stamps[0]);
        Message::Notice { session, stamp, what, detail: &self.text }
    }
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out).expect("within the limits");
    out
}

/// Whatever decodes can be encoded again and means the same.
fn decode_and_back(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = decode(bytes) {
        let again = encoded(&message);
        prop_assert_eq!(decode(&again), Ok(message));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decode_undoes_encode(parts in parts(), shift in 0..8usize) {
        let message = parts.message();
        let mut bytes = vec![0; shift];
        bytes.extend(encoded(&message));
        prop_assert_eq!(decode(&bytes[shift..]), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        decode_and_back(&bytes)?;
    }

    #[test]
    fn arbitrary_words_after_a_good_header_never_panic(words in vec(0..1u64 << 40, 1..40)) {
        let mut bytes = ((words.len() as u64) << 32).to_le_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        decode_and_back(&bytes)?;
    }

    #[test]
    fn a_good_message_with_bits_flipped_never_panics(
        parts in parts(),
        flips in vec((any::<prop::sample::Index>(), 0..8u8), 1..8),
    ) {
        let mut bytes = encoded(&parts.message());
        for (at, bit) in flips {
            // Most bits of a long message are payload: aim half the flips at its structure.
            let reach = if bit % 2 == 0 { bytes.len().min(72) } else { bytes.len() };
            bytes[at.index(reach)] ^= 1 << bit;
        }
        decode_and_back(&bytes)?;
    }

    #[test]
    fn a_good_message_cut_short_is_refused(parts in parts(), at in any::<prop::sample::Index>()) {
        let bytes = encoded(&parts.message());
        prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
    }
}

#[test]
fn every_single_bit_of_every_sample_may_be_wrong() {
    for (_, sample) in samples::all() {
        let bytes = encoded(&sample);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            decode_and_back(&wrong).expect("decodes to the same message again");
        }
    }
}
