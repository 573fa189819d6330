//! What a call on a socket came to. The decision is made in `sockets`; the hook layer turns it into a return value.

use rustix::io::Errno;

use crate::table::Socket;

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The call returns this.
    Done(isize),
    /// The call returns −1 with this `errno`.
    Fail(Errno),
    /// The call fails with EPIPE, and the thread gets a SIGPIPE first.
    BrokenPipe,
    /// The call is the kernel's.
    Pass,
    /// Wait until the placeholder is readable, then try again. So many bytes have been moved: what the call returns if the
    /// wait ends otherwise.
    AwaitReadable { moved: usize },
    /// Wait until the placeholder is readable. However the wait ends, the call returns 0: it was to move nothing.
    AwaitOnce,
    /// Wait until more arrives than these bytes, which have been looked at, then try again.
    AwaitMore { moved: usize },
    /// Wait until the listener's placeholder has something, then try again.
    AwaitAcceptable,
    /// Wait until the connect under way has come to something, then try again. When the time is up, the call fails with this.
    AwaitConnected(Errno),
    /// As [`AwaitReadable`](Self::AwaitReadable), writable.
    AwaitWritable {
        moved: usize,
        /// Whether the call may go on after a signal that asks for it: nothing has been moved by the whole of it.
        may_restart: bool,
    },
}

impl Outcome {
    pub(crate) const SUCCESS: Outcome = Outcome::Done(0);

    /// So many bytes were moved.
    pub(crate) fn moved(bytes: usize) -> Outcome {
        Outcome::Done(bytes.cast_signed())
    }
}

impl From<Result<(), Errno>> for Outcome {
    fn from(result: Result<(), Errno>) -> Outcome {
        result.map_or_else(Outcome::Fail, |()| Outcome::SUCCESS)
    }
}

/// Why an attempt is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Woken {
    /// It is the first.
    First,
    /// The placeholder became ready.
    Ready,
    /// The wire is closed.
    HungUp,
}

/// A placeholder's socket, in a call that is about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The descriptor.
    pub(crate) fd: std::os::fd::RawFd,
    /// Its socket.
    pub(crate) socket: Socket,
}
