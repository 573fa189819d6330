//! One system call for each connection's part of a batch.

use std::io::IoSlice;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::sockets::Sockets;
use crate::stack::{Key, Sent};

/// Offers one part to its connection.
pub(super) fn send(sockets: &Sockets, key: Key, part: &[IoSlice<'_>]) -> Sent {
    let Some(socket) = sockets.get(key) else { return Sent::Gone(Errno::BADF) };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let taken = match part {
            [one] => rustix::net::send(&socket.descriptor, one, flags),
            many => {
                let mut nothing = SendAncillaryBuffer::default();
                rustix::net::sendmsg(&socket.descriptor, many, &mut nothing, flags)
            }
        };
        match taken {
            Ok(bytes) => return Sent::Bytes(bytes),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Sent::Full,
            Err(error) => return Sent::Gone(error),
        }
    }
}
