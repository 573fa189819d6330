//! What the card remembers of each of its sockets.

use std::net::SocketAddr;
use std::time::Instant;

use rustix::io::Errno;

/// One socket.
#[derive(Debug)]
pub(super) struct Entry {
    /// Index of its session.
    pub(super) session: usize,
    pub(super) kind: Kind,
}

/// What it is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Bound; perhaps listening.
    Named {
        /// Queued in `accepting`.
        is_accepting: bool,
    },
    /// A connect is under way.
    Connecting,
    /// A connection. The MQTT core knows it by the same number.
    Stream(Stream),
}

/// How the client's side stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Client {
    /// It may send.
    Open,
    /// It sent its FIN.
    Fin,
    /// The connection is gone; its stack's socket still tells its options.
    Gone(Errno),
}

/// How the broker's side stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Broker {
    /// It may write.
    Open,
    /// It shut its half down; the FIN follows the last byte.
    Ended,
    /// The same, and the FIN was sent.
    Finished,
    /// It holds no descriptor any more; the socket closes behind the last byte.
    Closed,
}

/// One connection.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each set and asked on its own"
)]
pub(super) struct Stream {
    /// The client's end.
    pub(super) peer: SocketAddr,
    pub(super) client: Client,
    pub(super) broker: Broker,
    /// There may be bytes, an end or an error to read.
    pub(super) may_read: bool,
    /// A FIN or an error lies behind the bytes: a short read does not clear `may_read`.
    pub(super) has_end: bool,
    /// The stack takes bytes, as far as is known.
    pub(super) may_send: bool,
    /// The broker knows of the client's end.
    pub(super) is_told: bool,
    /// The broker reads no more, as it said: what the client still sends once the broker's FIN is out resets the connection.
    pub(super) is_deaf: bool,
    /// Queued in `readable`.
    pub(super) in_readable: bool,
    /// Queued in `upward`.
    pub(super) in_upward: bool,
    /// Queued in `sendable`.
    pub(super) in_sendable: bool,
    /// Listed in `lingering`.
    pub(super) linger: Option<Instant>,
    /// A send found the connection gone; the next read says what is left, and then this.
    pub(super) send_error: Option<Errno>,
}

impl Stream {
    pub(super) fn new(peer: SocketAddr) -> Stream {
        Stream {
            peer,
            client: Client::Open,
            broker: Broker::Open,
            may_read: true,
            has_end: false,
            may_send: true,
            is_told: false,
            is_deaf: false,
            in_readable: false,
            in_upward: false,
            in_sendable: false,
            linger: None,
            send_error: None,
        }
    }

    /// Whether the broker ended both halves, so that the stack's reads end by themselves.
    pub(super) fn has_deaf_end(&self) -> bool {
        self.is_deaf && self.broker == Broker::Finished
    }

    /// Whether a read makes sense.
    pub(super) fn wants_read(&self) -> bool {
        self.may_read && self.client == Client::Open && self.broker != Broker::Closed
    }
}

impl Entry {
    /// Of a connection, the client's end.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Stream(stream) => Some(stream.peer),
            Kind::Named { .. } | Kind::Connecting => None,
        }
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Named { .. } | Kind::Connecting => None,
        }
    }
}
