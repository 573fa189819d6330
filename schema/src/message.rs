//! The typed form of every host-card message.
//!
//! A value of these types is well formed: [`decode()`](crate::decode()) refuses everything else, so nothing behind it checks again.
//! Byte strings are borrowed from the message they arrived in. No I/O, no clock.

use std::net::SocketAddr;

/// A broker's process group that shares one shared-memory session. Given out by the agent, unique for a channel's life.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u32);

/// One socket on the channel. The agent gives out odd numbers (Bind, Connect), the card even ones (Accepted); a number is
/// free again only after Close has gone both ways.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketId(pub u32);

/// Ties a [`Message::Reply`] to the request it answers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u32);

/// A place in the total order of everything a session's program wrote, or of everything the card wrote to it.
pub type Stamp = u64;

/// A socket option as `setsockopt(2)` takes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SocketOption<'a> {
    /// Protocol level, for example `SOL_SOCKET`.
    pub level: i32,
    /// Option name, for example `SO_REUSEADDR`.
    pub name: i32,
    /// The option's value in the host's byte order, at most [`crate::OPTION_VALUE_BYTES_MAX`].
    pub value: &'a [u8],
}

/// The first message in each direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hello<'a> {
    /// Oldest schema version the sender speaks.
    pub version_min: u16,
    /// Newest schema version the sender speaks.
    pub version_max: u16,
    /// Largest message the sender accepts, in bytes.
    pub max_message_bytes: u32,
    /// Bytes of one socket that may be under way towards the sender before it grants more by Credit.
    pub window_bytes: u32,
    /// Oldest shared-memory layout the sender can use; 0 where there is no shared memory.
    pub layout_min: u16,
    /// Newest shared-memory layout the sender can use; 0 where there is no shared memory.
    pub layout_max: u16,
    /// The program behind the sender, for logs.
    pub program: &'a str,
}

/// Which half of a connection a [`Message::Shutdown`] ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// `SHUT_RD`.
    Read,
    /// `SHUT_WR`.
    Write,
    /// `SHUT_RDWR`.
    Both,
}

/// Something of the program that the card cannot see by itself.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Notice {
    /// A program opened a session.
    SessionOpened,
    /// The last process of a session is gone, or the session was ended for a violation.
    SessionEnded,
    /// The program listens on a socket that stayed in the kernel.
    ListenerOutside,
    /// One such listener is gone.
    ListenerOutsideGone,
    /// The program connected a stream socket that stayed in the kernel, for example a bridge.
    ConnectionOutside,
    /// One such connection is gone.
    ConnectionOutsideGone,
    /// The program loaded a shared object by itself, perhaps a plugin.
    LibraryLoaded,
}

/// What an [`Message::Option`] asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OptionAction<'a> {
    /// `getsockopt(2)` with a buffer of this many bytes.
    Get(u32),
    /// `setsockopt(2)` with this value.
    Set(&'a [u8]),
}

/// One message between host and card.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// Opens the channel, both ways.
    Hello(Hello<'a>),
    /// Host to card: bind a new socket. Answered by Reply with the bound address.
    Bind {
        /// Echoed in the Reply.
        request: RequestId,
        /// The session the socket belongs to.
        session: SessionId,
        /// The new socket's number.
        socket: SocketId,
        /// The program's user: SO_REUSEPORT is shared only between equal uids.
        uid: u32,
        /// Where to bind.
        address: SocketAddr,
        /// Options to set before binding.
        options: Vec<SocketOption<'a>>,
    },
    /// Host to card: listen on a bound socket. Answered by Reply.
    Listen {
        /// Echoed in the Reply.
        request: RequestId,
        /// A bound socket.
        socket: SocketId,
        /// As `listen(2)` takes it.
        backlog: i32,
        /// Between shim and agent: the placeholder's file name when it outlived an agent, else empty.
        placeholder: &'a str,
        /// Options to set before listening.
        options: Vec<SocketOption<'a>>,
    },
    /// Card to host: a client's connection is established.
    Accepted {
        /// The listener it came in on.
        listener: SocketId,
        /// The new connection's number.
        socket: SocketId,
        /// The card's end.
        local: SocketAddr,
        /// The client's end.
        peer: SocketAddr,
    },
    /// Host to card: connect, from a bound socket or a new one. Answered by Reply (errno 0 or at once refused), then Connected.
    Connect {
        /// Echoed in the Reply.
        request: RequestId,
        /// The session the socket belongs to.
        session: SessionId,
        /// A bound socket, or a new number.
        socket: SocketId,
        /// The program's user.
        uid: u32,
        /// Where to connect to.
        address: SocketAddr,
        /// Options to set before connecting.
        options: Vec<SocketOption<'a>>,
    },
    /// Card to host: the outcome of a Connect.
    Connected {
        /// The socket.
        socket: SocketId,
        /// 0, or why not.
        errno: i32,
        /// The card's end; unspecified when `errno` is not 0.
        local: SocketAddr,
        /// The other end.
        peer: SocketAddr,
    },
    /// Bytes of one stream, either way, within the credit its receiver granted.
    Data {
        /// The socket.
        socket: SocketId,
        /// The sender's place for them in its total order.
        stamp: Stamp,
        /// Host to card: nothing stamped later than this had been read when they were written. Card to host: 0.
        read: Stamp,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// Card to host: the client sent its FIN; everything before it has been sent.
    Eof {
        /// The socket.
        socket: SocketId,
        /// Its place in the card's order.
        stamp: Stamp,
    },
    /// Card to host: the connection is gone; `errno` is what the program reads.
    Reset {
        /// The socket.
        socket: SocketId,
        /// `ECONNRESET`, `ETIMEDOUT`, …
        errno: i32,
    },
    /// Either way: the receiver of a stream allows this many bytes more.
    Credit {
        /// The socket.
        socket: SocketId,
        /// At least one.
        bytes: u32,
    },
    /// Host to card: the program was told that a write would block, or was taken only in part.
    Blocked {
        /// The socket.
        socket: SocketId,
        /// Its place in the session's order.
        stamp: Stamp,
    },
    /// Host to card: `shutdown(2)`.
    Shutdown {
        /// The socket.
        socket: SocketId,
        /// Its place in the session's order.
        stamp: Stamp,
        /// Which half.
        how: How,
    },
    /// Host to card: no descriptor is left. Card to host: the number is free again.
    Close {
        /// The socket.
        socket: SocketId,
        /// Its place in the sender's order.
        stamp: Stamp,
        /// Host to card: received bytes were left unread, so the card resets the connection.
        unread: bool,
    },
    /// Host to card: get or set a socket option. Answered by Reply.
    Option {
        /// Echoed in the Reply.
        request: RequestId,
        /// The socket.
        socket: SocketId,
        /// Protocol level.
        level: i32,
        /// Option name.
        name: i32,
        /// What to do with it.
        action: OptionAction<'a>,
    },
    /// Host to card: something the card cannot see.
    Notice {
        /// Whose.
        session: SessionId,
        /// Its place in the session's order.
        stamp: Stamp,
        /// What.
        what: Notice,
        /// A program's name, an address: for logs.
        detail: &'a str,
    },
    /// The answer to a request.
    Reply {
        /// Which.
        request: RequestId,
        /// 0, or what the libc call reports.
        errno: i32,
        /// The bound address, where the request has one.
        address: SocketAddr,
        /// An option's value.
        value: &'a [u8],
    },
    /// Once a second, both ways; five seconds of silence end the channel.
    Heartbeat {
        /// Counts up.
        sequence: u64,
    },
    /// Host to card: the program opened a file for reading, or loads a library, so what it permits may be different from
    /// here on. Before everything it wrote afterwards; perhaps before some of what it wrote earlier.
    PolicyChanged {
        /// Whose.
        session: SessionId,
        /// Its place in the session's order.
        stamp: Stamp,
        /// How often that happened since the session began. 0: it has not yet, and every time will be told.
        epoch: u64,
    },
}
