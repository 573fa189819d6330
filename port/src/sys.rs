//! The system calls of ports that no library makes.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::Mac;

/// The name of an interface, ended by a zero byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterfaceName([u8; libc::IFNAMSIZ]);

impl InterfaceName {
    /// `None` if no interface can have the name.
    pub(super) fn new(name: &str) -> Option<InterfaceName> {
        let mut bytes = [0; libc::IFNAMSIZ];
        if name.is_empty() || name.len() >= bytes.len() || name.contains(['/', '\0', ' ']) {
            return None;
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(InterfaceName(bytes))
    }
}

/// `struct ifreq` (netdevice(7)): a name, and room for what is asked of it.
#[repr(C, align(8))]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    fn new(name: &InterfaceName) -> Request {
        Request { name: name.0, value: [0; 24] }
    }

    /// Asks `descriptor` for one of the requests that read and write a `struct ifreq`.
    fn ask(&mut self, descriptor: &OwnedFd, request: libc::Ioctl) -> Result<(), Errno> {
        // SAFETY: each caller names a request that reads and writes one `struct ifreq` at the pointer (netdevice(7);
        // drivers/net/tun.c for TUNSETIFF), which `self` is as long as and aligned like.
        let failed =
            unsafe { libc::ioctl(descriptor.as_raw_fd(), request, std::ptr::from_mut(self)) };
        if failed == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Makes the open device the other end of the TAP interface of this name.
pub(super) fn attach_tap(device: &OwnedFd, name: &InterfaceName) -> Result<(), Errno> {
    let mut request = Request::new(name);
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    request.value[..2].copy_from_slice(&flags.to_ne_bytes());
    request.ask(device, libc::TUNSETIFF as libc::Ioctl)
}

/// An interface's MTU.
pub(super) fn mtu(name: &InterfaceName) -> Result<usize, Errno> {
    let mut request = Request::new(name);
    request.ask(&any_socket()?, libc::SIOCGIFMTU as libc::Ioctl)?;
    let [a, b, c, d, ..] = request.value;
    usize::try_from(i32::from_ne_bytes([a, b, c, d])).map_err(|_| Errno::INVAL)
}

/// An interface's Ethernet address.
pub(super) fn mac(name: &InterfaceName) -> Result<Mac, Errno> {
    let mut request = Request::new(name);
    request.ask(&any_socket()?, libc::SIOCGIFHWADDR as libc::Ioctl)?;
    // A `struct sockaddr`: two bytes of family, then the address.
    let [_, _, a, b, c, d, e, f, ..] = request.value;
    Ok([a, b, c, d, e, f])
}

/// Any socket carries questions about interfaces.
fn any_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}
