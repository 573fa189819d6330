//! Reads the members of the schema's union into [`Message`].
//!
//! Cap'n Proto's readers live no longer than the reader of the whole message, which ends with `decode`. What a message
//! borrows is therefore found again in the input by its place (`Source`): a subtraction and a bounds check, no copy.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use capnp::{NotInSchema, data, struct_list, text};

use super::DecodeError;
use crate::mqttshim_capnp as wire;
use crate::mqttshim_capnp::message::Which;
use crate::{
    Hello, How, Message, Notice, OptionAction, RequestId, SessionId, SocketId, SocketOption, rules,
};

/// The segment a message is read from.
#[derive(Clone, Copy)]
struct Source<'a>(&'a [u8]);

/// Reads one message out of `segment`, of which `root` is a view.
pub(super) fn message<'a>(
    root: wire::message::Reader<'_>,
    segment: &'a [u8],
) -> Result<Message<'a>, DecodeError> {
    let source = Source(segment);
    match root.which().map_err(|NotInSchema(number)| DecodeError::Unknown(number))? {
        Which::Hello(from) => source.hello(from?),
        Which::Bind(from) => source.bind(from?),
        Which::Listen(from) => source.listen(from?),
        Which::Accepted(from) => accepted(from?),
        Which::Connect(from) => source.connect(from?),
        Which::Connected(from) => connected(from?),
        Which::Data(from) => source.data(from?),
        Which::Eof(from) => eof(from?),
        Which::Reset(from) => reset(from?),
        Which::Credit(from) => credit(from?),
        Which::Blocked(from) => blocked(from?),
        Which::Shutdown(from) => shutdown(from?),
        Which::Close(from) => close(from?),
        Which::Option(from) => source.option(from?),
        Which::Notice(from) => source.notice(from?),
        Which::Reply(from) => source.reply(from?),
        Which::Heartbeat(from) => Ok(Message::Heartbeat { sequence: from?.get_sequence() }),
        Which::PolicyChanged(from) => Ok(policy_changed(from?)),
    }
}

impl<'a> Source<'a> {
    fn hello(self, from: wire::hello::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        let hello = Hello {
            version_min: from.get_version_min(),
            version_max: from.get_version_max(),
            max_message_bytes: from.get_max_message_bytes(),
            window_bytes: from.get_window_bytes(),
            layout_min: from.get_layout_min(),
            layout_max: from.get_layout_max(),
            program: self.text("program", from.get_program()?)?,
        };
        Ok(Message::Hello(rules::hello(hello)?))
    }

    fn bind(self, from: wire::bind::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        Ok(Message::Bind {
            request: RequestId(from.get_request()),
            session: SessionId(from.get_session()),
            socket: SocketId(from.get_socket()),
            uid: from.get_uid(),
            address: address("address", from.get_address()?)?,
            options: self.options(from.get_options()?)?,
        })
    }

    fn listen(self, from: wire::listen::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        Ok(Message::Listen {
            request: RequestId(from.get_request()),
            socket: SocketId(from.get_socket()),
            backlog: from.get_backlog(),
            placeholder: self.text("placeholder", from.get_placeholder()?)?,
            options: self.options(from.get_options()?)?,
        })
    }

    fn connect(self, from: wire::connect::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        Ok(Message::Connect {
            request: RequestId(from.get_request()),
            session: SessionId(from.get_session()),
            socket: SocketId(from.get_socket()),
            uid: from.get_uid(),
            address: address("address", from.get_address()?)?,
            options: self.options(from.get_options()?)?,
        })
    }

    fn data(self, from: wire::stream_data::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        Ok(Message::Data {
            socket: SocketId(from.get_socket()),
            stamp: from.get_stamp(),
            read: from.get_read(),
            bytes: rules::stream_bytes(self.bytes(from.get_bytes()?)?)?,
        })
    }

    fn option(self, from: wire::option::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        use wire::option::Which;
        let action = match from.which() {
            Ok(Which::Get(bytes)) => OptionAction::Get(bytes),
            Ok(Which::Set(value)) => OptionAction::Set(self.option_value(value?)?),
            Err(NotInSchema(number)) => return Err(DecodeError::UnknownOptionAction(number)),
        };
        Ok(Message::Option {
            request: RequestId(from.get_request()),
            socket: SocketId(from.get_socket()),
            level: from.get_level(),
            name: from.get_name(),
            action,
        })
    }

    fn notice(self, from: wire::notice::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        use wire::notice::What;
        let what = match from.get_what() {
            Ok(What::SessionOpened) => Notice::SessionOpened,
            Ok(What::SessionEnded) => Notice::SessionEnded,
            Ok(What::ListenerOutside) => Notice::ListenerOutside,
            Ok(What::ListenerOutsideGone) => Notice::ListenerOutsideGone,
            Ok(What::ConnectionOutside) => Notice::ConnectionOutside,
            Ok(What::ConnectionOutsideGone) => Notice::ConnectionOutsideGone,
            Ok(What::LibraryLoaded) => Notice::LibraryLoaded,
            Err(NotInSchema(number)) => return Err(DecodeError::UnknownNotice(number)),
        };
        Ok(Message::Notice {
            session: SessionId(from.get_session()),
            stamp: from.get_stamp(),
            what,
            detail: self.text("detail", from.get_detail()?)?,
        })
    }

    fn reply(self, from: wire::reply::Reader<'_>) -> Result<Message<'a>, DecodeError> {
        Ok(Message::Reply {
            request: RequestId(from.get_request()),
            errno: from.get_errno(),
            address: address("address", from.get_address()?)?,
            value: self.option_value(from.get_value()?)?,
        })
    }

    fn options(
        self,
        list: struct_list::Reader<'_, wire::socket_option::Owned>,
    ) -> Result<Vec<SocketOption<'a>>, DecodeError> {
        let mut options = Vec::with_capacity(rules::option_count(list.len() as usize)?);
        for entry in list {
            options.push(SocketOption {
                level: entry.get_level(),
                name: entry.get_name(),
                value: self.option_value(entry.get_value()?)?,
            });
        }
        Ok(options)
    }

    fn option_value(self, value: data::Reader<'_>) -> Result<&'a [u8], DecodeError> {
        Ok(rules::option_value(self.bytes(value)?)?)
    }

    fn text(self, field: &'static str, text: text::Reader<'_>) -> Result<&'a str, DecodeError> {
        let text = str::from_utf8(self.bytes(text.as_bytes())?)
            .map_err(|error| DecodeError::NotUtf8 { field, at: error.valid_up_to() })?;
        Ok(rules::text(field, text)?)
    }

    /// The same bytes, borrowed from the segment itself.
    fn bytes(self, part: &[u8]) -> Result<&'a [u8], DecodeError> {
        if part.is_empty() {
            // An absent field is an empty constant of the reader's, outside the segment.
            return Ok(&[]);
        }
        part.as_ptr()
            .addr()
            .checked_sub(self.0.as_ptr().addr())
            .and_then(|start| self.0.get(start..)?.get(..part.len()))
            .ok_or(DecodeError::Malformed(capnp::ErrorKind::MessageContainsOutOfBoundsPointer))
    }
}

fn accepted(from: wire::accepted::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Accepted {
        listener: SocketId(from.get_listener()),
        socket: SocketId(from.get_socket()),
        local: address("local", from.get_local()?)?,
        peer: address("peer", from.get_peer()?)?,
    })
}

fn connected(from: wire::connected::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Connected {
        socket: SocketId(from.get_socket()),
        errno: from.get_errno(),
        local: address("local", from.get_local()?)?,
        peer: address("peer", from.get_peer()?)?,
    })
}

fn eof(from: wire::eof::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Eof { socket: SocketId(from.get_socket()), stamp: from.get_stamp() })
}

fn reset(from: wire::reset::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Reset { socket: SocketId(from.get_socket()), errno: from.get_errno() })
}

fn credit(from: wire::credit::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    let bytes = rules::credit(from.get_bytes())?;
    Ok(Message::Credit { socket: SocketId(from.get_socket()), bytes })
}

fn blocked(from: wire::blocked::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Blocked { socket: SocketId(from.get_socket()), stamp: from.get_stamp() })
}

fn shutdown(from: wire::shutdown::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    let how = match from.get_how() {
        Ok(wire::shutdown::How::Read) => How::Read,
        Ok(wire::shutdown::How::Write) => How::Write,
        Ok(wire::shutdown::How::Both) => How::Both,
        Err(NotInSchema(number)) => return Err(DecodeError::UnknownHow(number)),
    };
    Ok(Message::Shutdown { socket: SocketId(from.get_socket()), stamp: from.get_stamp(), how })
}

fn close(from: wire::close::Reader<'_>) -> Result<Message<'static>, DecodeError> {
    Ok(Message::Close {
        socket: SocketId(from.get_socket()),
        stamp: from.get_stamp(),
        unread: from.get_unread(),
    })
}

fn policy_changed(from: wire::policy_changed::Reader<'_>) -> Message<'static> {
    Message::PolicyChanged {
        session: SessionId(from.get_session()),
        stamp: from.get_stamp(),
        epoch: from.get_epoch(),
    }
}

fn address(
    field: &'static str,
    from: wire::address::Reader<'_>,
) -> Result<SocketAddr, DecodeError> {
    let (high, low) = (from.get_high(), from.get_low());
    let (port, flow, scope) = (from.get_port(), from.get_flow(), from.get_scope());
    match (from.get_family(), u32::try_from(low)) {
        (4, Ok(bits)) if high == 0 && flow == 0 && scope == 0 => {
            Ok(SocketAddrV4::new(Ipv4Addr::from_bits(bits), port).into())
        }
        (4, _) => Err(DecodeError::AddressBits { field }),
        (6, _) => {
            let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
            Ok(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        (family, _) => Err(DecodeError::AddressFamily { field, family }),
    }
}
