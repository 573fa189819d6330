//! The system calls of ports that no library makes, the memory that AF_XDP shares with the kernel, and a word to the processor.
//!
//! | | |
//! |---|---|
//! | this file | `ioctl`s on interfaces (netdevice(7)) |
//! | [`bpf`] | programs and maps (bpf(2)) |
//! | [`umem`] | where frames lie, and whose each piece is |
//! | [`ring`] | numbers and descriptors between us and the kernel |
//! | [`prefetch`] | memory asked for ahead |

pub(super) mod bpf;
pub mod prefetch;
pub(super) mod ring;
pub(super) mod umem;

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
        // drivers/net/tun.c for TUNSETIFF), which `self` is as long as and aligned like, and at most what a pointer in it names,
        // which `ask_driver` vouches for.
        let failed =
            unsafe { libc::ioctl(descriptor.as_raw_fd(), request, std::ptr::from_mut(self)) };
        outcome(failed)
    }
}

/// Makes the open device the other end of the TAP interface of this name, each frame behind a header of `header_bytes` (`struct
/// virtio_net_hdr`), and lets the kernel leave to it the checksums and the segmentation of TCP.
pub(super) fn attach_tap(
    device: &OwnedFd,
    name: &InterfaceName,
    header_bytes: i32,
) -> Result<(), Errno> {
    let mut request = Request::new(name);
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    request.value[..2].copy_from_slice(&flags.to_ne_bytes());
    request.ask(device, libc::TUNSETIFF as libc::Ioctl)?;
    // Whoever had the device before may have wanted a longer one.
    // SAFETY: the request reads one `int` at the pointer (drivers/net/tun.c).
    let failed = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::TUNSETVNETHDRSZ as libc::Ioctl,
            &raw const header_bytes,
        )
    };
    outcome(failed)?;
    let offloads = libc::c_ulong::from(libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6);
    // SAFETY: the request takes its flags by value (drivers/net/tun.c).
    let failed =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as libc::Ioctl, offloads) };
    outcome(failed)
}

/// What an `ioctl` says that returned `failed`.
fn outcome(failed: libc::c_int) -> Result<(), Errno> {
    if failed == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
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

/// Whether an interface is up.
pub(super) fn is_up(name: &InterfaceName) -> Result<bool, Errno> {
    let mut request = Request::new(name);
    request.ask(&any_socket()?, libc::SIOCGIFFLAGS as libc::Ioctl)?;
    let [a, b, ..] = request.value;
    Ok(libc::c_int::from(i16::from_ne_bytes([a, b])) & libc::IFF_UP != 0)
}

/// An interface's number.
pub(super) fn index(name: &str) -> Result<u32, Errno> {
    rustix::net::netdevice::name_to_index(any_socket()?, name)
}

/// `struct ethtool_drvinfo` (linux/ethtool.h).
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// The name of an interface's driver.
pub(super) fn driver(name: &InterfaceName) -> Result<String, Errno> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ask_driver(name, &mut info)?;
    let name = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct Flags {
    command: u32,
    flags: u32,
}

/// Whether an interface's driver takes VLAN tags off what it receives.
pub(super) fn strips_tags(name: &InterfaceName) -> Result<bool, Errno> {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let mut it = Flags { command: ETHTOOL_GFLAGS, flags: 0 };
    ask_driver(name, &mut it)?;
    Ok(it.flags & ETH_FLAG_RXVLAN != 0)
}

/// `struct ethtool_channels` (linux/ethtool.h).
#[repr(C)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    both: u32,
}

/// How many queues an interface's driver says it has.
pub(super) fn queues(name: &InterfaceName) -> Result<u32, Errno> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut it = Channels {
        command: ETHTOOL_GCHANNELS,
        max: [0; 4],
        receive: 0,
        send: 0,
        other: 0,
        both: 0,
    };
    ask_driver(name, &mut it)?;
    Ok(it.both + it.receive.max(it.send))
}

/// Asks an interface's driver by one of ethtool's commands that read and write `question`, which begins with the command's number.
fn ask_driver<T>(name: &InterfaceName, question: &mut T) -> Result<(), Errno> {
    let mut request = Request::new(name);
    // The request's value is a pointer, to memory that outlives the call.
    let address = std::ptr::from_mut(question).expose_provenance();
    request.value[..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
    request.ask(&any_socket()?, libc::SIOCETHTOOL as libc::Ioctl)
}

/// Has the kernel send as many frames of an AF_XDP socket in one call, which are 32 otherwise (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17).
pub(super) fn set_frames_a_send(socket: &OwnedFd, frames: u32) -> Result<(), Errno> {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let bytes = size_of::<u32>() as libc::socklen_t;
    let value = (&raw const frames).cast();
    // SAFETY: the option reads one `u32` at the pointer (net/xdp/xsk.c).
    let failed = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, value, bytes)
    };
    outcome(failed)
}

/// Any socket carries questions about interfaces.
fn any_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}
