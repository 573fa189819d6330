//! What a message of the host means, checked against what is known of its socket.
//!
//! ```text
//!                       ┌ fits ───────────────► Input
//! message ──decode──►───┤ another's business ──► nothing
//!                       ├ breaks the protocol ─► that session ends (its sockets are reset)
//!                       └ is no message ───────► the channel ends
//! ```
//!
//! A message for a socket number that is not in use cannot be laid at one session's door: it is counted and dropped. Newer
//! messages that this build does not know are skipped (schema, compatibility rules).

use mqttshim_schema::{
    Hello, How, Message, Notice, OptionAction, RequestId, SessionId, SocketId, decode, negotiate,
};
use rustix::io::Errno;

use super::sockets::{Socket, State, is_odd};
use super::{Counters, Input, Intercept, Link, Standing, Token, WINDOW_BYTES, our_hello};
use crate::attach::Attach;
use crate::stack::Key;

/// Sessions one channel may have at once.
const SESSIONS_MAX: usize = 4096;
/// Credit a host may let pile up for one socket.
const CREDIT_MAX: u32 = 1 << 30;

/// How a session broke the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Violation {
    #[error("{bytes} bytes beyond the credit of {socket:?}")]
    CreditOverrun { socket: SocketId, bytes: usize },
    #[error("more than {CREDIT_MAX} bytes of credit for {socket:?}")]
    CreditFlood { socket: SocketId },
    #[error("{what} for {socket:?}, which is {state:?}")]
    State { what: &'static str, socket: SocketId, state: State },
    #[error("data for {socket:?} after its end")]
    DataAfterEnd { socket: SocketId },
    #[error("{socket:?} is not the agent's to give out")]
    Parity { socket: SocketId },
    #[error("{socket:?} is in use")]
    Duplicate { socket: SocketId },
    #[error("{socket:?} belongs to another session")]
    Foreign { socket: SocketId },
}

/// Why the whole channel is given up.
#[derive(Debug, thiserror::Error)]
enum Fatal {
    #[error("no message: {0}")]
    Decode(#[from] mqttshim_schema::DecodeError),
    #[error("{0}")]
    Negotiate(#[from] mqttshim_schema::NegotiateError),
    #[error("the first message is no Hello")]
    NoHello,
    #[error("a second Hello")]
    SecondHello,
    #[error("a message that only the card sends")]
    CardsOwn,
    #[error("more than {SESSIONS_MAX} sessions")]
    Sessions,
}

/// A message's meaning, or what to do about it.
enum Verdict<'b> {
    Input(Input<'b>),
    Nothing,
    Refuse(RequestId, Errno),
    UnknownSocket(SocketId),
    Violation(SessionId, Violation),
}

use Verdict::Nothing;

impl Intercept {
    pub(super) fn handle<'b>(&mut self, message: &'b [u8]) -> Option<Input<'b>> {
        let link = self.link.as_mut()?;
        let verdict = match decode(message) {
            Ok(message) => link.judge(message),
            Err(newer) if newer.is_skippable() => Ok(Nothing),
            Err(error) => Err(error.into()),
        };
        match verdict {
            Ok(Verdict::Input(input)) => Some(input),
            Ok(Nothing) => None,
            Ok(Verdict::Refuse(request, errno)) => {
                self.reply(request, Err(errno));
                None
            }
            Ok(Verdict::UnknownSocket(socket)) => {
                self.counters.violations += 1;
                tracing::debug!(?socket, "message for an unknown socket dropped");
                None
            }
            Ok(Verdict::Violation(session, violation)) => {
                link.expel(session, violation, &mut self.counters);
                Some(Input::SessionEnded { session })
            }
            Err(fatal) => {
                self.counters.violations += 1;
                self.lose(&fatal);
                None
            }
        }
    }
}

impl Link {
    fn judge<'b>(&mut self, message: Message<'b>) -> Result<Verdict<'b>, Fatal> {
        if self.window_bytes.is_none() {
            let Message::Hello(hello) = message else { return Err(Fatal::NoHello) };
            return self.greet(&hello);
        }
        Ok(match message {
            Message::Hello(_) => return Err(Fatal::SecondHello),
            Message::Bind { .. } | Message::Listen { .. } | Message::Connect { .. } => {
                return self.judge_request(message);
            }
            Message::Option { request, socket, level, name, action } => {
                self.judge_option(request, socket, level, name, action)
            }
            Message::Data { socket, bytes, .. } => self.judge_data(socket, bytes),
            Message::Credit { socket, bytes } => self.judge_credit(socket, bytes),
            Message::Blocked { socket, .. } => {
                self.on_stream(socket, "Blocked", |_, key| Verdict::Input(Input::Blocked { key }))
            }
            Message::Shutdown { socket, how, .. } => {
                self.on_stream(socket, "Shutdown", |known, key| {
                    known.ended |= how != How::Read;
                    Verdict::Input(Input::Shutdown { key, how })
                })
            }
            Message::Close { socket, unread, .. } => self.judge_close(socket, unread),
            Message::Notice { session, what, detail, .. } => {
                return self.judge_notice(session, what, detail);
            }
            Message::PolicyChanged { session, epoch, .. } => {
                let open = self.admit(session)?;
                let input = Input::PolicyEpoch { session, epoch };
                if open { Verdict::Input(input) } else { Nothing }
            }
            Message::Heartbeat { .. } => Nothing,
            Message::Accepted { .. }
            | Message::Connected { .. }
            | Message::Eof { .. }
            | Message::Reset { .. }
            | Message::Reply { .. } => return Err(Fatal::CardsOwn),
        })
    }

    fn greet(&mut self, theirs: &Hello<'_>) -> Result<Verdict<'static>, Fatal> {
        let ours = our_hello(self.outgoing.channel().max_message_bytes());
        let agreed = negotiate(&ours, theirs)?;
        self.outgoing.set_max_message_bytes(agreed.max_message_bytes as usize);
        self.window_bytes = Some(theirs.window_bytes);
        tracing::info!(
            host = theirs.program,
            version = agreed.version,
            max_message_bytes = agreed.max_message_bytes,
            "channel open"
        );
        Ok(Nothing)
    }

    /// The session, opened by its first message. False: it was expelled.
    fn admit(&mut self, session: SessionId) -> Result<bool, Fatal> {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&session) {
            return Err(Fatal::Sessions);
        }
        Ok(*self.sessions.entry(session).or_insert(Standing::Open) == Standing::Open)
    }

    fn judge_request<'b>(&mut self, message: Message<'b>) -> Result<Verdict<'b>, Fatal> {
        Ok(match message {
            Message::Bind { request, session, socket, uid, address, options } => {
                if !self.admit(session)? {
                    return Ok(Verdict::Refuse(request, Errno::CONNABORTED));
                }
                if let Err(violation) = self.new_socket(socket) {
                    return Ok(Verdict::Violation(session, violation));
                }
                let token = Token(socket.0);
                Verdict::Input(Input::Bind { request, session, token, uid, address, options })
            }
            Message::Listen { request, socket, backlog, options, .. } => {
                let Some(known) = self.sockets.get_mut(socket) else {
                    return Ok(Verdict::Refuse(request, Errno::BADF));
                };
                let Some(key) = known.key else {
                    return Ok(Verdict::Refuse(request, Errno::CONNABORTED));
                };
                match known.state {
                    State::Named => {
                        Verdict::Input(Input::Listen { request, key, backlog, options })
                    }
                    State::Connecting | State::Stream => Verdict::Refuse(request, Errno::INVAL),
                }
            }
            Message::Connect { request, session, socket, uid, address, options } => {
                if !self.admit(session)? {
                    return Ok(Verdict::Refuse(request, Errno::CONNABORTED));
                }
                let token = Token(socket.0);
                match self.connectable(session, socket) {
                    Ok(Ok(key)) => Verdict::Input(Input::Connect {
                        request,
                        session,
                        token,
                        key,
                        uid,
                        address,
                        options,
                    }),
                    Ok(Err(errno)) => Verdict::Refuse(request, errno),
                    Err(violation) => Verdict::Violation(session, violation),
                }
            }
            _ => Nothing,
        })
    }

    fn new_socket(&self, socket: SocketId) -> Result<(), Violation> {
        if !is_odd(socket) {
            return Err(Violation::Parity { socket });
        }
        if self.sockets.contains(socket) {
            return Err(Violation::Duplicate { socket });
        }
        Ok(())
    }

    /// The key of a socket that may connect, `None` for a new one; or what connect(2) says.
    fn connectable(
        &mut self,
        session: SessionId,
        socket: SocketId,
    ) -> Result<Result<Option<Key>, Errno>, Violation> {
        let Some(known) = self.sockets.get_mut(socket) else {
            return self.new_socket(socket).map(|()| Ok(None));
        };
        if known.session != session {
            return Err(Violation::Foreign { socket });
        }
        Ok(match (known.state, known.key) {
            (_, None) => Err(Errno::CONNABORTED),
            (State::Named, key) => Ok(key),
            (State::Connecting, _) => Err(Errno::ALREADY),
            (State::Stream, _) => Err(Errno::ISCONN),
        })
    }

    fn judge_option<'b>(
        &mut self,
        request: RequestId,
        socket: SocketId,
        level: i32,
        name: i32,
        action: OptionAction<'b>,
    ) -> Verdict<'b> {
        match self.sockets.get_mut(socket).map(|known| known.key) {
            None => Verdict::Refuse(request, Errno::BADF),
            Some(None) => Verdict::Refuse(request, Errno::CONNABORTED),
            Some(Some(key)) => Verdict::Input(Input::Option { request, key, level, name, action }),
        }
    }

    /// A message that only a connection may get.
    fn on_stream<'b>(
        &mut self,
        socket: SocketId,
        what: &'static str,
        judge: impl FnOnce(&mut Socket, Key) -> Verdict<'b>,
    ) -> Verdict<'b> {
        let Some(known) = self.sockets.get_mut(socket) else {
            return Verdict::UnknownSocket(socket);
        };
        match (known.key, known.state) {
            // Only its Close is awaited; what was under way is dropped.
            (None, _) => Nothing,
            (Some(key), State::Stream) => judge(known, key),
            (Some(_), state) => {
                let violation = Violation::State { what, socket, state };
                Verdict::Violation(known.session, violation)
            }
        }
    }

    fn judge_data<'b>(&mut self, socket: SocketId, bytes: &'b [u8]) -> Verdict<'b> {
        self.on_stream(socket, "Data", |known, key| {
            if known.ended {
                return Verdict::Violation(known.session, Violation::DataAfterEnd { socket });
            }
            let room = (WINDOW_BYTES - known.used) as usize;
            if bytes.len() > room {
                let bytes = bytes.len() - room;
                return Verdict::Violation(
                    known.session,
                    Violation::CreditOverrun { socket, bytes },
                );
            }
            // At most the window, which is a u32.
            known.used += bytes.len() as u32;
            Verdict::Input(Input::Data { key, bytes })
        })
    }

    fn judge_credit(&mut self, socket: SocketId, bytes: u32) -> Verdict<'static> {
        self.on_stream(socket, "Credit", |known, key| {
            match known.credit.checked_add(bytes).filter(|credit| *credit <= CREDIT_MAX) {
                Some(credit) => {
                    known.credit = credit;
                    Verdict::Input(Input::Room { key })
                }
                None => Verdict::Violation(known.session, Violation::CreditFlood { socket }),
            }
        })
    }

    /// Close is answered by Close at once: the number is free, whatever the card still has to send to the client.
    fn judge_close(&mut self, socket: SocketId, unread: bool) -> Verdict<'static> {
        let Some(known) = self.sockets.get_mut(socket) else {
            if is_odd(socket) {
                // A number whose Bind or Connect was refused: the agent may give it up in its own way.
                self.free(socket);
                return Nothing;
            }
            return Verdict::UnknownSocket(socket);
        };
        let key = known.key;
        self.free(socket);
        key.map_or(Nothing, |key| Verdict::Input(Input::Close { key, unread }))
    }

    fn free(&mut self, socket: SocketId) {
        self.sockets.remove(socket);
        let stamp = self.outgoing.stamp();
        self.outgoing.send(&Message::Close { socket, stamp, unread: false });
    }

    fn judge_notice<'b>(
        &mut self,
        session: SessionId,
        what: Notice,
        detail: &'b str,
    ) -> Result<Verdict<'b>, Fatal> {
        let (listeners, connections) = match what {
            Notice::SessionEnded => {
                for socket in self.sockets.of(session) {
                    self.free(socket);
                }
                let standing = self.sessions.remove(&session);
                let was_open = standing == Some(Standing::Open);
                return Ok(if was_open {
                    Verdict::Input(Input::SessionEnded { session })
                } else {
                    Nothing
                });
            }
            Notice::SessionOpened => {
                let open = self.admit(session)?;
                let input = Input::SessionOpened { session, program: detail };
                return Ok(if open { Verdict::Input(input) } else { Nothing });
            }
            Notice::LibraryLoaded => {
                let open = self.admit(session)?;
                let input = Input::LibraryLoaded { session, path: detail };
                return Ok(if open { Verdict::Input(input) } else { Nothing });
            }
            Notice::ListenerOutside => (1, 0),
            Notice::ListenerOutsideGone => (-1, 0),
            Notice::ConnectionOutside => (0, 1),
            Notice::ConnectionOutsideGone => (0, -1),
        };
        let open = self.admit(session)?;
        let name = detail;
        let input = Input::Outside { session, listeners, connections, name };
        Ok(if open { Verdict::Input(input) } else { Nothing })
    }

    /// Ends a session for a violation: its sockets are reset; their numbers wait for the host's Close.
    fn expel(&mut self, session: SessionId, violation: Violation, counters: &mut Counters) {
        tracing::warn!(session = session.0, %violation, "session ended for a violation");
        counters.violations += 1;
        for socket in self.sockets.of(session) {
            if self.sockets.get_mut(socket).is_some_and(|known| known.key.is_some()) {
                let errno = Errno::CONNRESET.raw_os_error();
                self.outgoing.send(&Message::Reset { socket, errno });
            }
            self.sockets.forget_key(socket);
        }
        self.sessions.insert(session, Standing::Expelled);
    }
}
