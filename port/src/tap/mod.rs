//! A TAP device: the card is one host on an Ethernet link whose other end is the kernel's interface of that name.
//!
//! For a laptop, containers and tests: no driver has to know of it, and a device made for a user beforehand (`ip tuntap add`)
//! needs no privilege. Each frame is a system call, but what one end's TCP sends at once is one frame of up to 64 KiB, with its checksum
//! left out, in both directions: the kernel cuts and finishes what leaves it again by a device that does not.
//! Source: Documentation/networking/tuntap.rst, linux/virtio_net.h.

mod dropped;
mod header;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use self::dropped::Dropped;
use self::header::HEADER_BYTES;
use crate::{Capabilities, Checksums, Lost, Mac, Port, Receive, Transmit, Unfinished, sys};

const DEVICE: &str = "/dev/net/tun";
/// Bytes before a packet on Ethernet.
const ETHERNET_BYTES: usize = 14;
/// RFC 8200 §5; less carries no IPv6, and RFC 9293 wants 576 at least.
const MTU_MIN: usize = 1280;
const MTU_MAX: usize = 65_521;
/// The longest packet of several segments that is left uncut: what an IP header can tell.
const PACKET_BYTES_MAX: usize = 65_535;

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no such name.
    #[error("{0:?} is no name of an interface: 1 to 15 bytes")]
    Name(String),
    /// The kernel has no TAP devices, or not for this user.
    #[error(
        "cannot open {DEVICE}: {0}; it takes the kernel's module tun (modprobe tun), the right to read and write that file, \
         and CAP_NET_ADMIN or a device made for this user. --stack kernel needs none of it"
    )]
    Device(#[source] Errno),
    /// It may not be used.
    #[error("cannot use the TAP device {name}: {error}; {}", advice(name, *error))]
    Attach {
        /// Its name.
        name: String,
        /// What the system said.
        #[source]
        error: Errno,
    },
    /// It does not say what it is.
    #[error("cannot ask the interface {name} for its {what}: {error}")]
    Ask {
        /// Its name.
        name: String,
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        error: Errno,
    },
}

/// What to do where the kernel does not hand a device over.
fn advice(name: &str, error: Errno) -> String {
    match error {
        Errno::BUSY => {
            "another program has it, perhaps another dpu-server: stop that, or choose another name"
                .to_owned()
        }
        Errno::INVAL => format!(
            "an interface of this name is there, and it is no TAP device, or one of several queues: choose another name, or \
             xdp:{name}"
        ),
        _ => format!(
            "it takes CAP_NET_ADMIN, or a device made for this user: ip tuntap add dev {name} mode tap user $USER. \
             --stack kernel needs neither"
        ),
    }
}

/// See the module.
#[derive(Debug)]
pub struct Tap {
    receive: Incoming,
    transmit: Outgoing,
    mac: Mac,
    mtu: usize,
    is_up: bool,
    dropped: Dropped,
}

/// The receiving half.
#[derive(Debug)]
pub struct Incoming {
    device: OwnedFd,
    /// A header and a frame.
    frame: Vec<u8>,
}

/// The sending half.
#[derive(Debug)]
pub struct Outgoing {
    device: OwnedFd,
    /// A header and a frame.
    frame: Vec<u8>,
    is_gone: Option<Errno>,
    lost: u64,
}

impl Tap {
    /// Whether this user may open TAP devices at all.
    ///
    /// # Errors
    /// [`TapError::Device`].
    pub fn check() -> Result<(), TapError> {
        open_device().map(drop)
    }

    /// Opens the device of this name, made now if there is none. One that was made now is gone with the process.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open(name: &str) -> Result<Tap, TapError> {
        let device = open_device()?;
        let request =
            sys::InterfaceName::new(name).ok_or_else(|| TapError::Name(name.to_owned()))?;
        sys::attach_tap(&device, &request, HEADER_BYTES as i32)
            .map_err(|error| TapError::Attach { name: name.to_owned(), error })?;
        let asked = |what, error| TapError::Ask { name: name.to_owned(), what, error };
        let mtu = sys::mtu(&request).map_err(|error| asked("MTU", error))?;
        let mtu = mtu.clamp(MTU_MIN, MTU_MAX);
        let interface = sys::mac(&request).map_err(|error| asked("address", error))?;
        let mac = card_mac(interface);
        let is_up = sys::is_up(&request).map_err(|error| asked("state", error))?;
        let copy = device.try_clone().map_err(|error| TapError::Attach {
            name: name.to_owned(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        let room = || vec![0; HEADER_BYTES + ETHERNET_BYTES + PACKET_BYTES_MAX];
        Ok(Tap {
            receive: Incoming { device, frame: room() },
            transmit: Outgoing { device: copy, frame: room(), is_gone: None, lost: 0 },
            mac,
            mtu,
            is_up,
            dropped: Dropped::of(name),
        })
    }

    /// Whether the kernel's end was up when the device was opened; one that was made then is not.
    #[must_use]
    pub fn was_up(&self) -> bool {
        self.is_up
    }
}

fn open_device() -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(TapError::Device)
}

/// The card's address: another than the interface's, the same each time.
fn card_mac(mut interface: Mac) -> Mac {
    interface[0] = (interface[0] | 2) & !1;
    interface[5] ^= 1;
    interface
}

impl Receive for Incoming {
    fn burst(
        &mut self,
        frames_max: usize,
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        for taken in 0..frames_max {
            match rustix::io::read(&self.device, &mut self.frame[..]) {
                Ok(length) => each(&mut self.frame[HEADER_BYTES..length.max(HEADER_BYTES)]),
                Err(Errno::AGAIN) => return Ok(taken),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(frames_max)
    }
}

impl Outgoing {
    fn write<R>(
        &mut self,
        header: [u8; HEADER_BYTES],
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let end = HEADER_BYTES + length;
        self.frame[..HEADER_BYTES].copy_from_slice(&header);
        let outcome = fill(&mut self.frame[HEADER_BYTES..end]);
        match rustix::io::write(&self.device, &self.frame[..end]) {
            // An interface that is down takes nothing (EIO), nor does a call that a signal ends: frames are lost on any link.
            Ok(_) | Err(Errno::INTR | Errno::IO) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => self.lost += 1,
            Err(error) => self.is_gone = Some(error),
        }
        outcome
    }
}

impl Transmit for Outgoing {
    const UNFINISHED_BYTES_MAX: Option<usize> = Some(PACKET_BYTES_MAX);

    fn has_room(&mut self) -> bool {
        self.is_gone.is_none()
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.write(header::FINISHED, length, fill)
    }

    fn unfinished<R>(
        &mut self,
        length: usize,
        left: Unfinished,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.write(header::unfinished(&left), length, fill)
    }

    fn kick(&mut self) -> Result<(), Errno> {
        self.is_gone.map_or(Ok(()), Err)
    }
}

impl Port for Tap {
    type Receive = Incoming;
    type Transmit = Outgoing;

    fn halves(&mut self) -> (&mut Incoming, &mut Outgoing) {
        (&mut self.receive, &mut self.transmit)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: self.mtu, checksums: Checksums::MayBePartial }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn lost(&self) -> Lost {
        Lost { arrived: self.dropped.count(), leaving: self.transmit.lost }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.receive.device.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_s_address_is_a_local_one_and_not_the_interface_s() {
        let interface = [0x3c, 0x22, 0x0a, 0xff, 0x00, 0x01];
        let card = card_mac(interface);
        assert_eq!((card[0] & 3, card[5]), (2, 0));
        assert_ne!(card, interface);
    }

    #[test]
    fn what_to_do_follows_from_what_the_kernel_says() {
        let said = |error| TapError::Attach { name: "mq0".to_owned(), error }.to_string();
        assert!(said(Errno::BUSY).contains("another program has it"));
        assert!(said(Errno::INVAL).contains("no TAP device"));
        assert!(said(Errno::PERM).contains("ip tuntap add dev mq0"));
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let refused = Tap::open("a name of more than fifteen bytes");
        assert!(
            refused.is_err_and(|error| error.to_string().contains("no name")
                || matches!(error, TapError::Device(_)))
        );
    }
}
