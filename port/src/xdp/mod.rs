//! AF_XDP: frames of a network interface, past the kernel's own stack.
//!
//! ```text
//! interface ─► program ─┬─► our addresses ─► one socket a queue ─► the card
//!                       └─► all else ──────► the kernel's own stack
//! ```
//!
//! The interface keeps its addresses, its routes and everything it does; the card's addresses are others, behind the same Ethernet
//! address. The driver runs the program where it can, otherwise the kernel does; memory is shared with the driver where it
//! offers that. All queues are received from; all is sent by the first, so frames of a connection keep their order.
//!
//! The program goes with the process, whatever ends it.
//! Source: Documentation/networking/af_xdp.rst. Why it is our own code: ADR 24.

mod error;
mod program;
mod queue;
mod tag;

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

pub use self::error::XdpError;
use self::error::refused;
use self::program::{Filter, assemble};
use self::queue::{FRAME_BYTES_MAX, Receiver, Sender};
use crate::sys::bpf::{self, Mode};
use crate::{Capabilities, Checksums, Lost, Mac, Port, Receive, Transmit, sys};

/// Ethernet's header, with or without a tag.
const HEADER_BYTES: usize = 14 + tag::TAG_BYTES;
/// RFC 8200 §5; less carries no IPv6, and RFC 9293 wants 576 at least.
const MTU_MIN: usize = 1280;
/// What a chunk has room for. Of a larger MTU the rest is not used.
const MTU_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;
const QUEUES_MAX: u32 = 64;
/// After as many bursts in a row that were empty, the socket is asked whether its interface is still there.
const EMPTY_BURSTS_MAX: u32 = 16;
/// Drivers whose frames come from this machine, and so perhaps without a checksum.
const DRIVERS_NEAR: [&str; 2] = ["veth", "virtio_net"];

/// See the module.
#[derive(Debug)]
pub struct Xdp {
    /// First, so that it ends first: no frame is then taken from the kernel that nobody reads.
    _link: OwnedFd,
    receive: Incoming,
    transmit: Outgoing,
    /// Ready when one of several queues is.
    ready: Option<OwnedFd>,
    capabilities: Capabilities,
    mac: Mac,
    manner: Manner,
}

/// How an interface is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Manner {
    /// The driver runs the program, not the kernel behind it.
    pub is_native: bool,
    /// Frames are not copied between driver and card.
    pub is_zero_copy: bool,
    /// As many are served.
    pub queues: usize,
    /// The driver may take VLAN tags off before anybody sees them (`ethtool -K INTERFACE rxvlan off`).
    pub may_strip_tags: bool,
    /// It was up when it was opened.
    pub was_up: bool,
}

/// The receiving half.
#[derive(Debug)]
pub struct Incoming {
    queues: Vec<Receiver>,
    /// The queue that is first next time.
    next: usize,
    empty_bursts: u32,
}

/// The sending half.
#[derive(Debug)]
pub struct Outgoing(Sender);

/// What is known of the interface beforehand.
struct Interface<'a> {
    name: &'a str,
    request: sys::InterfaceName,
    index: u32,
    mtu: usize,
}

impl Interface<'_> {
    /// Whether its driver says that it has no queue of this number.
    fn has_no_queue(&self, queue: u32) -> bool {
        sys::queues(&self.request).is_ok_and(|queues| (1..=queue).contains(&queues))
    }
}

impl Xdp {
    /// Whether this user may use AF_XDP at all.
    ///
    /// # Errors
    /// [`XdpError::Rights`], [`XdpError::Kernel`].
    pub fn check() -> Result<(), XdpError> {
        queue::socket().map_err(|errno| refused("socket", errno))?;
        bpf::socket_map(1).map_err(|errno| refused("bpf", errno)).map(drop)
    }

    /// Whether this user may use AF_XDP, and there is such an interface that carries enough; whether it is up. Leaves it alone.
    ///
    /// # Errors
    /// [`XdpError`], all that do not need a program on the interface.
    pub fn check_interface(name: &str) -> Result<bool, XdpError> {
        let Known { request, .. } = Known::of(name)?;
        Ok(sys::is_up(&request).unwrap_or(true))
    }

    /// Takes the frames to these addresses from an interface: those tagged with `vlan`, or those without a tag. A driver that takes tags
    /// off by itself must be told not to ([`Manner::may_strip_tags`]): its frames all look as if they had none.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(name: &str, addresses: &[IpAddr], vlan: Option<u16>) -> Result<Xdp, XdpError> {
        let Known { request, index, mtu } = Known::of(name)?;
        let asked = |what| move |errno| XdpError::Ask { name: name.to_owned(), what, errno };
        let mac = sys::mac(&request).map_err(asked("address"))?;
        let was_up = sys::is_up(&request).map_err(asked("state"))?;
        // Drivers that do not say so are none of those that matter.
        let driver = sys::driver(&request).unwrap_or_default();
        let is_near = DRIVERS_NEAR.contains(&driver.as_str());
        let capabilities = Capabilities {
            mtu: mtu.min(MTU_MAX),
            checksums: if is_near { Checksums::MayBePartial } else { Checksums::Unknown },
        };
        let filter = Filter { addresses: addresses.to_vec(), vlan };
        let interface = Interface { name, request, index, mtu: capabilities.mtu };
        let attached = attach(&interface, &filter)?;
        let may_strip_tags = sys::strips_tags(&request).unwrap_or(false);
        attached.into_port(capabilities, mac, may_strip_tags, was_up).map_err(XdpError::Wait)
    }

    /// How the interface is used.
    #[must_use]
    pub fn manner(&self) -> Manner {
        self.manner
    }
}

/// What an interface tells before anything is done to it.
struct Known {
    request: sys::InterfaceName,
    index: u32,
    mtu: usize,
}

impl Known {
    fn of(name: &str) -> Result<Known, XdpError> {
        let request =
            sys::InterfaceName::new(name).ok_or_else(|| XdpError::Name(name.to_owned()))?;
        let index = sys::index(name)
            .map_err(|errno| XdpError::Interface { name: name.to_owned(), errno })?;
        Xdp::check()?;
        let mtu = sys::mtu(&request).map_err(|errno| XdpError::Ask {
            name: name.to_owned(),
            what: "MTU",
            errno,
        })?;
        if mtu < MTU_MIN {
            return Err(XdpError::Mtu { name: name.to_owned(), mtu, min: MTU_MIN });
        }
        Ok(Known { request, index, mtu })
    }
}

/// A program that runs, and the sockets it sends to.
struct Attached {
    link: OwnedFd,
    mode: Mode,
    queues: Vec<(Receiver, Sender)>,
}

/// By the driver, and if that cannot be, by the kernel.
fn attach(interface: &Interface<'_>, filter: &Filter) -> Result<Attached, XdpError> {
    let native = attach_as(interface, filter, Mode::Native);
    match native {
        Err(XdpError::Attach { .. } | XdpError::Queue { errno: Errno::OPNOTSUPP, .. }) => {
            attach_as(interface, filter, Mode::Generic)
        }
        outcome => outcome,
    }
}

fn attach_as(interface: &Interface<'_>, filter: &Filter, mode: Mode) -> Result<Attached, XdpError> {
    let map = bpf::socket_map(QUEUES_MAX).map_err(|errno| refused("bpf", errno))?;
    let code = assemble(filter, map.as_raw_fd());
    let program = bpf::load(&code).map_err(|errno| refused("loading an XDP program", errno))?;
    let name = || interface.name.to_owned();
    let link =
        bpf::attach(program.as_fd(), interface.index, mode).map_err(|errno| match errno {
            Errno::BUSY | Errno::EXIST => XdpError::Taken { name: name(), errno },
            Errno::PERM => refused("attaching an XDP program", errno),
            _ => XdpError::Attach { name: name(), errno },
        })?;
    // A program changes drivers' queues, so they are looked for behind it. Until a socket is in the map, its queue's frames pass.
    let queues = open_queues(interface, mode, filter.vlan)?;
    for (number, (receiver, _)) in queues.iter().enumerate() {
        bpf::put_socket(map.as_fd(), number as u32, receiver.socket())
            .map_err(|errno| refused("bpf", errno))?;
    }
    Ok(Attached { link, mode, queues })
}

/// All queues of an interface.
fn open_queues(
    interface: &Interface<'_>,
    mode: Mode,
    vlan: Option<u16>,
) -> Result<Vec<(Receiver, Sender)>, XdpError> {
    let frame_bytes = HEADER_BYTES + interface.mtu;
    let mut queues = Vec::new();
    for queue in 0..=QUEUES_MAX {
        match queue::open(interface.index, queue, mode, frame_bytes, vlan) {
            // The kernel's way to say that there is no such queue.
            Err(Errno::INVAL) if queue > 0 => return Ok(queues),
            // Memory is locked before the kernel says that. Without enough to ask for one queue more the driver is believed.
            Err(errno) if is_memory_short(errno) && interface.has_no_queue(queue) => {
                return Ok(queues);
            }
            Err(errno) => {
                let name = interface.name.to_owned();
                return Err(XdpError::Queue { name, queue, errno, advice: advice(errno) });
            }
            Ok(opened) => queues.push(opened),
        }
    }
    Err(XdpError::Queues { name: interface.name.to_owned(), max: QUEUES_MAX })
}

fn is_memory_short(errno: Errno) -> bool {
    matches!(errno, Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN)
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::BUSY => "another program has it: stop that, or choose another interface",
        _ if is_memory_short(errno) => {
            "each queue takes 8 MiB of locked memory, with an MTU above 1774 16 (ulimit -l, or LimitMEMLOCK= of systemd), or CAP_IPC_LOCK"
        }
        _ => "--stack kernel needs none",
    }
}

impl Attached {
    fn into_port(
        self,
        capabilities: Capabilities,
        mac: Mac,
        may_strip_tags: bool,
        was_up: bool,
    ) -> Result<Xdp, Errno> {
        let (receivers, senders): (Vec<_>, Vec<_>) = self.queues.into_iter().unzip();
        let manner = Manner {
            is_native: self.mode == Mode::Native,
            is_zero_copy: receivers.first().map_or(Ok(false), Receiver::is_zero_copy)?,
            queues: receivers.len(),
            may_strip_tags,
            was_up,
        };
        let ready = if receivers.len() > 1 { Some(watch(&receivers)?) } else { None };
        // There is one at least, or no port.
        let first = senders.into_iter().next().ok_or(Errno::NODEV)?;
        Ok(Xdp {
            _link: self.link,
            receive: Incoming { queues: receivers, next: 0, empty_bursts: 0 },
            transmit: Outgoing(first),
            ready,
            capabilities,
            mac,
            manner,
        })
    }
}

fn watch(queues: &[Receiver]) -> Result<OwnedFd, Errno> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, queue.socket(), data, epoll::EventFlags::IN)?;
    }
    Ok(set)
}

impl Receive for Incoming {
    fn burst(
        &mut self,
        frames_max: usize,
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let mut taken = 0;
        for step in 0..self.queues.len() {
            let at = (self.next + step) % self.queues.len();
            taken += self.queues[at].burst(frames_max - taken, &mut each)?;
        }
        self.next = (self.next + 1) % self.queues.len();
        self.empty_bursts = if taken == 0 { self.empty_bursts + 1 } else { 0 };
        if self.empty_bursts == EMPTY_BURSTS_MAX {
            self.empty_bursts = 0;
            self.queues[0].check()?;
        }
        Ok(taken)
    }
}

impl Transmit for Outgoing {
    fn has_room(&mut self) -> bool {
        self.0.has_room()
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.0.frame(length, fill)
    }

    fn kick(&mut self) -> Result<(), Errno> {
        self.0.kick()
    }

    fn is_pending(&self) -> bool {
        self.0.is_pending()
    }
}

impl Port for Xdp {
    type Receive = Incoming;
    type Transmit = Outgoing;

    fn halves(&mut self) -> (&mut Incoming, &mut Outgoing) {
        (&mut self.receive, &mut self.transmit)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn lost(&self) -> Lost {
        let arrived = self.receive.queues.iter().map(Receiver::lost).sum();
        Lost { arrived, leaving: self.transmit.0.lost() }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        match &self.ready {
            Some(set) => set.as_fd(),
            None => self.receive.queues[0].socket(),
        }
    }
}
