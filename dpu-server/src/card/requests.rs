//! What brokers ask for: sockets, options, and the streams they write.

use std::net::SocketAddr;
use std::time::Instant;

use mqttshim_schema::{How, OPTION_VALUE_BYTES_MAX, OptionAction, SessionId, SocketOption};
use rustix::io::Errno;

use super::blind::BlindNames;
use super::sockets::{Broker, Client, Entry, Kind};
use super::{Card, MESSAGES_MAX, Session};
use crate::attach::{Answer, Attach, Input, Token};
use crate::mqtt::{ConnId, Core};
use crate::stack::{Key, Stack};

/// Brokers that answer a PINGREQ only after they have written the copies of everything before it: those of one thread.
const ANSWERS_BEHIND_DELIVERIES: [&str; 1] = ["mosquitto"];

impl<A: Attach, S: Stack> Card<A, S> {
    /// Takes messages of the host; true if there were any.
    pub(super) fn take_requests(&mut self, now: Instant) -> bool {
        let mut message = std::mem::take(&mut self.message);
        let mut taken = 0;
        while taken < MESSAGES_MAX && self.attach.recv(now, &mut message) {
            taken += 1;
            if let Some(input) = self.attach.interpret(&message) {
                self.handle(input, now);
            }
        }
        self.message = message;
        taken > 0
    }

    fn handle(&mut self, input: Input<'_>, now: Instant) {
        match input {
            Input::Data { key, bytes } => self.broker_wrote(key, bytes, now),
            Input::Room { key } => self.queue_up(key),
            Input::Blocked { key } => {
                if let Some((core, conn)) = self.core_of(key) {
                    core.handle_broker_blocked(conn);
                }
            }
            Input::Shutdown { key, how } => self.broker_shut_down(key, how, now),
            Input::Close { key, unread } => self.broker_closed(key, unread, now),
            Input::Option { request, key, level, name, action } => {
                if (level, name) == (libc::SOL_TCP, libc::TCP_CORK)
                    && matches!(action, OptionAction::Set(on) if on.iter().any(|&byte| byte != 0))
                {
                    self.flush_before_cork(key, now);
                }
                let mut value = [0; OPTION_VALUE_BYTES_MAX];
                let answer = self.option(key, level, name, action, &mut value);
                let answer = answer.map(|bytes| Answer::Value(&value[..bytes]));
                self.attach.reply(request, answer);
            }
            Input::Bind { request, session, token, uid, address, options } => {
                let bound = self.bind(session, token, uid, address, &options);
                if let Err(error) = bound {
                    // Brokers say why they do not listen, and not that it is the card's addresses that count.
                    tracing::info!(%address, %error, "not bound");
                }
                self.attach.reply(request, bound.map(Answer::Address));
            }
            Input::Listen { request, key, backlog, options } => {
                let bound = self.stack.listen(key, backlog, &options);
                if let Ok(address) = bound {
                    tracing::info!(%address, "listening");
                }
                self.attach.reply(request, bound.map(Answer::Address));
            }
            Input::Connect { request, session, token, key, uid, address, options } => {
                let begun = match key {
                    Some(key) => self.connect_again(key, uid, address, &options),
                    None => self.connect(session, token, uid, address, &options),
                };
                self.attach.reply(request, begun.map(Answer::Address));
            }
            Input::SessionOpened { session, program } => {
                let index = self.session(session);
                program.clone_into(&mut self.sessions[index].program);
                if !ANSWERS_BEHIND_DELIVERIES.contains(&program) {
                    self.sessions[index].core.expect_late_deliveries();
                }
                tracing::info!(session = session.0, program, "session open");
            }
            Input::SessionEnded { session } => self.end_session(session, now),
            Input::PolicyEpoch { session, epoch } => self.policy_told(session, epoch),
            Input::LibraryLoaded { session, path } => self.library_loaded(session, path),
            Input::Outside { session, listeners, connections, name } => {
                self.outside(session, (listeners, connections), name);
            }
        }
    }

    /// The session's index; its first mention makes it.
    pub(super) fn session(&mut self, id: SessionId) -> usize {
        *self.by_id.entry(id).or_insert_with(|| {
            self.sessions.insert(Session {
                id,
                core: Core::new(self.config.core.clone()),
                program: String::new(),
                policy_epoch: 0,
                blind: BlindNames::default(),
                sockets: 0,
                is_ended: false,
            })
        })
    }

    /// The core of a connection that is one.
    fn core_of(&mut self, key: Key) -> Option<(&mut Core, ConnId)> {
        let entry = self.sockets.get_mut(key.index())?;
        entry.stream()?;
        Some((&mut self.sessions[entry.session].core, ConnId(key.0)))
    }

    /// A key for a new socket.
    fn vacant(&self) -> Result<Key, Errno> {
        if self.sockets.len() >= self.config.sockets_max {
            return Err(Errno::NOBUFS);
        }
        // There are never as many sockets as a u32 counts.
        Ok(Key(self.sockets.vacant_key() as u32))
    }

    fn bind(
        &mut self,
        session: SessionId,
        token: Token,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let key = self.vacant()?;
        let bound = self.stack.bind(key, uid, address, options)?;
        let index = self.session(session);
        self.insert(index, Kind::Named { is_accepting: false });
        self.attach.opened(session, token, key);
        Ok(bound)
    }

    fn connect(
        &mut self,
        session: SessionId,
        token: Token,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let key = self.vacant()?;
        let local = self.stack.connect(key, uid, address, options)?;
        let index = self.session(session);
        self.insert(index, Kind::Connecting);
        self.attach.opened(session, token, key);
        self.attach.connecting(key);
        Ok(local)
    }

    fn connect_again(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let local = self.stack.connect(key, uid, address, options)?;
        self.sockets.get_mut(key.index()).ok_or(Errno::BADF)?.kind = Kind::Connecting;
        self.attach.connecting(key);
        Ok(local)
    }

    /// TCP_CORK holds back what is written after it, not what was written before.
    fn flush_before_cork(&mut self, key: Key, now: Instant) {
        if self.core_of(key).is_some_and(|(core, conn)| !core.outbox(conn).is_empty()) {
            self.flush(now);
        }
    }

    fn option(
        &mut self,
        key: Key,
        level: i32,
        name: i32,
        action: OptionAction<'_>,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        match action {
            OptionAction::Get(bytes) => {
                let bytes = value.len().min(bytes as usize);
                self.stack.option(key, level, name, &mut value[..bytes])
            }
            OptionAction::Set(new) => self.stack.set_option(key, level, name, new).map(|()| 0),
        }
    }

    fn broker_wrote(&mut self, key: Key, bytes: &[u8], now: Instant) {
        let Some(entry) = self.sockets.get_mut(key.index()) else { return };
        let session = entry.session;
        let Some(stream) = entry.stream() else { return };
        if let Client::Gone(_) = stream.client {
            // Written before the broker could know.
            self.attach.drained(key, bytes.len());
            return;
        }
        if stream.send_error.is_some() {
            self.attach.drained(key, bytes.len());
            return;
        }
        self.sessions[session].core.handle_broker(ConnId(key.0), bytes, now);
    }

    fn broker_shut_down(&mut self, key: Key, how: How, now: Instant) {
        let Some(entry) = self.sockets.get_mut(key.index()) else { return };
        let session = entry.session;
        let Some(stream) = entry.stream() else { return };
        stream.is_deaf |= how != How::Write;
        if how == How::Read {
            // SHUT_RD is between the program and its own end: TCP has no word for it, until the FIN is out.
            if stream.broker == Broker::Finished {
                // A failure means that the client is gone; its read says so.
                let _ = self.stack.shutdown(key, How::Read);
            }
        } else if stream.broker == Broker::Open {
            stream.broker = Broker::Ended;
            // No copy of the card may follow the broker's last byte.
            self.sessions[session].core.handle_broker_gone(ConnId(key.0), now);
            self.queue_send(key);
            self.finish_if_drained(key, now);
        }
    }

    fn broker_closed(&mut self, key: Key, unread: bool, now: Instant) {
        match self.sockets.get(key.index()) {
            None => {}
            Some(&Entry { kind: Kind::Stream(_), session }) => {
                // What was not even handed over is unread too.
                let core = &mut self.sessions[session].core;
                let unread = unread || !core.to_broker(ConnId(key.0)).is_empty();
                self.close_stream(key, unread, now);
            }
            Some(_) => self.discard(key),
        }
    }
}
