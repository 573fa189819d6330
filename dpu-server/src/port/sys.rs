//! The system calls of ports that no library makes.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

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

/// `struct ifreq` with its flags (netdevice(7)): as long as the kernel's, which copies it whole.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceFlags>() == size_of::<libc::ifreq>());

/// Makes the open device the other end of the TAP interface of this name.
pub(super) fn attach_tap(device: &OwnedFd, name: &InterfaceName) -> Result<(), Errno> {
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let mut request = InterfaceFlags { name: name.0, flags, rest: [0; 22] };
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` at the pointer (drivers/net/tun.c), which `request` is as long as.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if failed == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
