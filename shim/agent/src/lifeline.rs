//! How the last close of a connection is seen once its wire is closed.
//!
//! A reset must close the wire, or the placeholder would not report ECONNRESET; but then nobody hears of the placeholder's own
//! end, and the slot would be taken for ever. Counting descriptors in the program does not help: a forked child that runs
//! another program never says what it closed. So the last byte on the wire carries the write end of a pipe:
//!
//! ```text
//! placeholder's queue: … │ byte + pipe's write end │        agent: pipe's read end, in the epoll set
//! last copy of the placeholder closed ──► queue purged ──► write end closed ──► read end hangs up
//! ```
//!
//! Nobody takes the byte: the session says Failed or Eof before it looks at the placeholder, and its token protocol takes no
//! more bytes than it owes. It is sent as the wire's write side ends, at the client's FIN, because later nothing can be sent;
//! it is watched only once the wire is closed. Cost: one pipe for each connection whose client has ended it.

use std::os::fd::{AsFd, OwnedFd};

use mqttshim_session::frame;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::PipeFlags;

/// Leaves a lifeline behind on a wire whose write side is about to end. What is returned hangs up with the placeholder.
///
/// # Errors
/// EPIPE or ECONNRESET when the placeholder's last descriptor is gone already.
pub(crate) fn leave(wire: impl AsFd) -> Result<OwnedFd, Errno> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    frame::send(wire, &[1], &[theirs.as_fd()], SendFlags::DONTWAIT)?;
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType};

    use super::*;

    fn hangs_up(fd: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).unwrap();
        fds[0].revents().contains(PollFlags::HUP)
    }

    #[test]
    fn it_hangs_up_with_the_last_copy_of_the_placeholder_though_the_wire_is_closed() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (placeholder, wire) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let lifeline = leave(&wire).unwrap();
        rustix::net::shutdown(&wire, Shutdown::Both).unwrap();
        drop(wire);
        let copy = rustix::io::dup(&placeholder).unwrap();
        drop(placeholder);
        // Whoever waits for it to be readable only looks.
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        assert_eq!(rustix::net::recv(&copy, &mut [0_u8; 8][..], flags).unwrap().1, 1);
        assert!(!hangs_up(&lifeline));
        drop(copy);
        assert!(hangs_up(&lifeline));
    }

    #[test]
    fn a_placeholder_that_is_gone_is_told_at_once() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (placeholder, wire) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        drop(placeholder);
        assert_eq!(leave(&wire).err(), Some(Errno::PIPE));
    }
}
