//! One message or more of every kind, each with the name of its golden file.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use mqttshim_schema::{
    Hello, How, Message, Notice, OptionAction, RequestId, SessionId, SocketId, SocketOption,
};

const LISTENER: SocketId = SocketId(0x0102_0305);
const CONNECTION: SocketId = SocketId(0x0102_0304);
const REQUEST: RequestId = RequestId(0x1112_1314);
const SESSION: SessionId = SessionId(0x2122_2324);
const STAMP: u64 = 0x3132_3334_3536_3738;

/// `SO_REUSEADDR` and `IPV6_V6ONLY` of Linux, both on.
const OPTIONS: [SocketOption<'static>; 2] = [
    SocketOption { level: 1, name: 2, value: &[1, 0, 0, 0] },
    SocketOption { level: 41, name: 26, value: &[1, 0, 0, 0] },
];

fn v4() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), 1883).into()
}

fn v6() -> SocketAddr {
    let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1112, 0x1314, 0x1516, 0x1718);
    SocketAddrV6::new(ip, 0x4142, 0x5_1525, 0x6162_6364).into()
}

/// Every message, under the name of its golden file.
pub(crate) fn all() -> Vec<(&'static str, Message<'static>)> {
    let mut all = setup();
    all.extend(streams());
    all.extend(options_and_notices());
    all
}

fn setup() -> Vec<(&'static str, Message<'static>)> {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        max_message_bytes: 4080,
        window_bytes: 262_144,
        layout_min: 1,
        layout_max: 2,
        program: "mosquitto",
    };
    vec![
        ("hello", Message::Hello(hello)),
        (
            "bind",
            Message::Bind {
                request: REQUEST,
                session: SESSION,
                socket: LISTENER,
                uid: 1000,
                address: v4(),
                options: OPTIONS.to_vec(),
            },
        ),
        (
            "listen",
            Message::Listen {
                request: REQUEST,
                socket: LISTENER,
                backlog: 100,
                placeholder: "listener.7",
                options: OPTIONS[..1].to_vec(),
            },
        ),
        (
            "accepted",
            Message::Accepted { listener: LISTENER, socket: CONNECTION, local: v4(), peer: v6() },
        ),
        (
            "connect",
            Message::Connect {
                request: REQUEST,
                session: SESSION,
                socket: CONNECTION,
                uid: u32::MAX,
                address: v6(),
                options: vec![],
            },
        ),
        (
            "connected",
            Message::Connected { socket: CONNECTION, errno: 111, local: v6(), peer: v4() },
        ),
        ("reply", Message::Reply { request: REQUEST, errno: 98, address: v4(), value: b"value" }),
        ("heartbeat", Message::Heartbeat { sequence: STAMP }),
    ]
}

fn streams() -> Vec<(&'static str, Message<'static>)> {
    let (socket, stamp) = (CONNECTION, STAMP);
    vec![
        ("data", Message::Data { socket, stamp, read: STAMP - 1, bytes: b"\x30\x05\x00\x01ahi" }),
        ("eof", Message::Eof { socket, stamp }),
        ("reset", Message::Reset { socket, errno: 104 }),
        ("credit", Message::Credit { socket, bytes: 65_536 }),
        ("blocked", Message::Blocked { socket, stamp }),
        ("shutdown_read", Message::Shutdown { socket, stamp, how: How::Read }),
        ("shutdown_write", Message::Shutdown { socket, stamp, how: How::Write }),
        ("shutdown_both", Message::Shutdown { socket, stamp, how: How::Both }),
        ("close", Message::Close { socket, stamp, unread: true }),
    ]
}

fn options_and_notices() -> Vec<(&'static str, Message<'static>)> {
    let option = |action| Message::Option {
        request: REQUEST,
        socket: CONNECTION,
        level: 6,
        name: 1,
        action,
    };
    let notice = |what| Message::Notice { session: SESSION, stamp: STAMP, what, detail: "bridge" };
    vec![
        ("option_get", option(OptionAction::Get(4))),
        ("option_set", option(OptionAction::Set(&[1, 0, 0, 0]))),
        ("notice_session_opened", notice(Notice::SessionOpened)),
        ("notice_session_ended", notice(Notice::SessionEnded)),
        ("notice_listener_outside", notice(Notice::ListenerOutside)),
        ("notice_listener_outside_gone", notice(Notice::ListenerOutsideGone)),
        ("notice_connection_outside", notice(Notice::ConnectionOutside)),
        ("notice_connection_outside_gone", notice(Notice::ConnectionOutsideGone)),
        ("notice_library_loaded", notice(Notice::LibraryLoaded)),
        (
            "policy_changed",
            Message::PolicyChanged { session: SESSION, stamp: STAMP, epoch: 0x4142_4344_4546_4748 },
        ),
    ]
}
