//! The messages off the data path, by Cap'n Proto's builder.
//!
//! The builder gets one segment that is large enough (`words_max`): a second one would be legal Cap'n Proto, but our
//! messages have a single segment. Allocates: that segment, and the builder's list of segments.

use std::net::SocketAddr;

use capnp::message::{Builder, HeapAllocator};
use capnp::struct_list;

use super::stream;
use crate::mqttshim_capnp as wire;
use crate::{Hello, How, Message, Notice, OptionAction, SocketOption, Violation, rules};

/// Words of the largest control message without text, options and values: Accepted and Connected take 16.
const FIXED_WORDS: usize = 24;
/// Words of one socket option without its value (one of data, one pointer), and its share of the list's tag.
const OPTION_WORDS: usize = 3;

pub(super) fn write(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
    if let Message::Hello(hello) = message {
        rules::hello(hello.clone())?;
    }
    let allocator = HeapAllocator::new().first_segment_words(words_max(message)?);
    let mut builder = Builder::new(allocator);
    requests(message, builder.init_root());
    let segments = builder.get_segments_for_output();
    assert_eq!(segments.len(), 1, "words_max covers every message");
    stream::header(segments[0].len(), out);
    out.extend_from_slice(segments[0]);
    Ok(())
}

/// Enough words for the whole message. Checks the limits of everything whose size varies.
fn words_max(message: &Message<'_>) -> Result<u32, Violation> {
    let variable = match message {
        Message::Hello(hello) => text_words("program", hello.program)?,
        Message::Bind { options, .. } | Message::Connect { options, .. } => option_words(options)?,
        Message::Listen { placeholder, options, .. } => {
            text_words("placeholder", placeholder)? + option_words(options)?
        }
        Message::Option { action: OptionAction::Set(value), .. } | Message::Reply { value, .. } => {
            rules::option_value(value)?.len().div_ceil(8)
        }
        Message::Notice { detail, .. } => text_words("detail", detail)?,
        _ => 0,
    };
    Ok(u32::try_from(FIXED_WORDS + variable).expect("the limits keep it below 3,000"))
}

fn text_words(field: &'static str, text: &str) -> Result<usize, Violation> {
    // Cap'n Proto ends text with a zero byte.
    Ok((rules::text(field, text)?.len() + 1).div_ceil(8))
}

fn option_words(options: &[SocketOption<'_>]) -> Result<usize, Violation> {
    let mut words = rules::option_count(options.len())? * OPTION_WORDS;
    for option in options {
        words += rules::option_value(option.value)?.len().div_ceil(8);
    }
    Ok(words)
}

/// What the host asks for and announces; the rest goes on to [`events`].
fn requests(message: &Message<'_>, root: wire::message::Builder<'_>) {
    match *message {
        Message::Hello(ref value) => hello(value, root.init_hello()),
        Message::Bind { request, session, socket, uid, address: to_bind, ref options } => {
            let mut to = root.init_bind();
            to.set_request(request.0);
            to.set_session(session.0);
            to.set_socket(socket.0);
            to.set_uid(uid);
            address(to_bind, to.reborrow().init_address());
            fill_options(options, to.init_options(count(options)));
        }
        Message::Listen { request, socket, backlog, placeholder, ref options } => {
            let mut to = root.init_listen();
            to.set_request(request.0);
            to.set_socket(socket.0);
            to.set_backlog(backlog);
            to.set_placeholder(placeholder);
            fill_options(options, to.init_options(count(options)));
        }
        Message::Connect { request, session, socket, uid, address: target, ref options } => {
            let mut to = root.init_connect();
            to.set_request(request.0);
            to.set_session(session.0);
            to.set_socket(socket.0);
            to.set_uid(uid);
            address(target, to.reborrow().init_address());
            fill_options(options, to.init_options(count(options)));
        }
        Message::Option { request, socket, level, name, action } => {
            let mut to = root.init_option();
            to.set_request(request.0);
            to.set_socket(socket.0);
            to.set_level(level);
            to.set_name(name);
            match action {
                OptionAction::Get(bytes) => to.set_get(bytes),
                OptionAction::Set(value) => to.set_set(value),
            }
        }
        Message::Notice { session, stamp, what, detail } => {
            let mut to = root.init_notice();
            to.set_session(session.0);
            to.set_stamp(stamp);
            to.set_what(wire_notice(what));
            to.set_detail(detail);
        }
        _ => events(message, root),
    }
}

/// What happened to a socket or a request.
fn events(message: &Message<'_>, root: wire::message::Builder<'_>) {
    match *message {
        Message::Accepted { listener, socket, local, peer } => {
            let mut to = root.init_accepted();
            to.set_listener(listener.0);
            to.set_socket(socket.0);
            address(local, to.reborrow().init_local());
            address(peer, to.init_peer());
        }
        Message::Connected { socket, errno, local, peer } => {
            let mut to = root.init_connected();
            to.set_socket(socket.0);
            to.set_errno(errno);
            address(local, to.reborrow().init_local());
            address(peer, to.init_peer());
        }
        Message::Eof { socket, stamp } => {
            let mut to = root.init_eof();
            to.set_socket(socket.0);
            to.set_stamp(stamp);
        }
        Message::Reset { socket, errno } => {
            let mut to = root.init_reset();
            to.set_socket(socket.0);
            to.set_errno(errno);
        }
        Message::Shutdown { socket, stamp, how } => {
            let mut to = root.init_shutdown();
            to.set_socket(socket.0);
            to.set_stamp(stamp);
            to.set_how(wire_how(how));
        }
        Message::Close { socket, stamp, unread } => {
            let mut to = root.init_close();
            to.set_socket(socket.0);
            to.set_stamp(stamp);
            to.set_unread(unread);
        }
        Message::Reply { request, errno, address: bound, value } => {
            let mut to = root.init_reply();
            to.set_request(request.0);
            to.set_errno(errno);
            address(bound, to.reborrow().init_address());
            to.set_value(value);
        }
        Message::Heartbeat { sequence } => root.init_heartbeat().set_sequence(sequence),
        Message::PolicyChanged { session, stamp, epoch } => {
            let mut to = root.init_policy_changed();
            to.set_session(session.0);
            to.set_stamp(stamp);
            to.set_epoch(epoch);
        }
        Message::Data { .. } | Message::Credit { .. } | Message::Blocked { .. } => {
            unreachable!("written by stream.rs")
        }
        Message::Hello(_)
        | Message::Bind { .. }
        | Message::Listen { .. }
        | Message::Connect { .. }
        | Message::Option { .. }
        | Message::Notice { .. } => unreachable!("written by requests"),
    }
}

fn hello(hello: &Hello<'_>, mut to: wire::hello::Builder<'_>) {
    to.set_version_min(hello.version_min);
    to.set_version_max(hello.version_max);
    to.set_max_message_bytes(hello.max_message_bytes);
    to.set_window_bytes(hello.window_bytes);
    to.set_layout_min(hello.layout_min);
    to.set_layout_max(hello.layout_max);
    to.set_program(hello.program);
}

fn address(address: SocketAddr, mut to: wire::address::Builder<'_>) {
    to.set_port(address.port());
    match address {
        SocketAddr::V4(v4) => {
            to.set_family(4);
            to.set_low(u64::from(v4.ip().to_bits()));
        }
        SocketAddr::V6(v6) => {
            let bits = v6.ip().to_bits();
            to.set_family(6);
            to.set_high((bits >> 64) as u64);
            to.set_low(bits as u64);
            to.set_scope(v6.scope_id());
            to.set_flow(v6.flowinfo());
        }
    }
}

/// The length for `init_options`.
fn count(options: &[SocketOption<'_>]) -> u32 {
    u32::try_from(options.len()).expect("words_max has checked it")
}

fn fill_options(
    options: &[SocketOption<'_>],
    mut to: struct_list::Builder<'_, wire::socket_option::Owned>,
) {
    for (index, option) in (0..).zip(options) {
        let mut entry = to.reborrow().get(index);
        entry.set_level(option.level);
        entry.set_name(option.name);
        entry.set_value(option.value);
    }
}

fn wire_how(how: How) -> wire::shutdown::How {
    match how {
        How::Read => wire::shutdown::How::Read,
        How::Write => wire::shutdown::How::Write,
        How::Both => wire::shutdown::How::Both,
    }
}

fn wire_notice(what: Notice) -> wire::notice::What {
    use wire::notice::What;
    match what {
        Notice::SessionOpened => What::SessionOpened,
        Notice::SessionEnded => What::SessionEnded,
        Notice::ListenerOutside => What::ListenerOutside,
        Notice::ListenerOutsideGone => What::ListenerOutsideGone,
        Notice::ConnectionOutside => What::ConnectionOutside,
        Notice::ConnectionOutsideGone => What::ConnectionOutsideGone,
        Notice::LibraryLoaded => What::LibraryLoaded,
    }
}
