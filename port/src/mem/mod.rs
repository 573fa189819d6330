//! Shared memory: two rings of frames between the card and one peer, what a hardware queue costs and no more.
//!
//! ```text
//! card: Mem::listen(path) ◄── socket: memory and two bells ──► peer: Mem::connect(path)
//!         writes ring 0, reads ring 1                            writes ring 1, reads ring 0
//! ```
//!
//! The peer is whoever connects to the path: the load generator, or a test. One at a time; another may come when it is gone, on new rings.
//! While there is none, frames are lost, as on a link without a carrier. Frames stay on this machine, so their checksums are not looked at.
//! A bell (eventfd(2)) is rung only for a reader that said it sleeps.

#[allow(unsafe_code, reason = "memory that two processes look at")]
mod memory;
mod rendezvous;
mod ring;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use self::rendezvous::{Met, Rendezvous, meet};
use self::ring::{FRAME_BYTES_MAX, Reader, Writer};
use crate::{Capabilities, Checksums, Lost, Mac, Port, Receive, Transmit};

pub use self::rendezvous::MemError;

/// The longest IP packet, as on Ethernet.
const MTU: usize = 1500;
/// Two stations on one link.
const CARD_MAC: Mac = *b"\x02mqtt\x01";
const PEER_MAC: Mac = *b"\x02mqtt\x02";

const RENDEZVOUS: u64 = 0;
const BELL: u64 = 1;
const HANG_UP: u64 = 2;

/// See the module.
#[derive(Debug)]
pub struct Mem {
    receive: Incoming,
    transmit: Outgoing,
    mac: Mac,
}

/// The receiving half. It notices the peer that comes and goes.
#[derive(Debug)]
pub struct Incoming {
    epoll: OwnedFd,
    /// `None` at the peer's end.
    rendezvous: Option<Rendezvous>,
    link: Option<Link>,
    /// News for the sending half.
    news: Option<Option<Outlet>>,
    frame: Box<[u8; FRAME_BYTES_MAX]>,
}

/// Where frames come from while there is a peer.
#[derive(Debug)]
struct Link {
    reader: Reader,
    bell: OwnedFd,
    /// Kept for its hang-up.
    _socket: OwnedFd,
}

/// Where frames go while there is a peer.
#[derive(Debug)]
struct Outlet {
    writer: Writer,
    bell: OwnedFd,
}

/// The sending half.
#[derive(Debug)]
pub struct Outgoing {
    outlet: Option<Outlet>,
    frame: Box<[u8; FRAME_BYTES_MAX]>,
    lost: u64,
}

impl Mem {
    /// The card's end: waits for peers under `path`, a socket that only its owner may use.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn listen(path: &Path) -> Result<Mem, MemError> {
        let rendezvous = Rendezvous::bind(path)?;
        let receive = Incoming::new(Some(rendezvous))?;
        Ok(Mem { receive, transmit: Outgoing::new(), mac: CARD_MAC })
    }

    /// The peer's end.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn connect(path: &Path) -> Result<Mem, MemError> {
        let mut receive = Incoming::new(None)?;
        receive.plug(meet(path)?)?;
        Ok(Mem { receive, transmit: Outgoing::new(), mac: PEER_MAC })
    }
}

impl Incoming {
    fn new(rendezvous: Option<Rendezvous>) -> Result<Incoming, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(rendezvous) = &rendezvous {
            watch(&epoll, rendezvous.as_fd(), RENDEZVOUS)?;
        }
        let frame = Box::new([0; FRAME_BYTES_MAX]);
        Ok(Incoming { epoll, rendezvous, link: None, news: None, frame })
    }

    /// Begins with a peer. The card writes ring 0.
    fn plug(&mut self, met: Met) -> Result<(), Errno> {
        let (written, read) = if self.rendezvous.is_some() { (0, 1) } else { (1, 0) };
        watch(&self.epoll, met.own_bell.as_fd(), BELL)?;
        watch(&self.epoll, met.socket.as_fd(), HANG_UP)?;
        let reader = Reader::new(std::sync::Arc::clone(&met.memory), read);
        let writer = Writer::new(met.memory, written);
        self.link = Some(Link { reader, bell: met.own_bell, _socket: met.socket });
        self.news = Some(Some(Outlet { writer, bell: met.other_bell }));
        Ok(())
    }

    /// The peer is gone, or not worth listening to. Closing its descriptors ends their watches.
    fn unplug(&mut self) -> Result<(), Errno> {
        self.link = None;
        self.news = Some(None);
        // Without a rendezvous nobody will come instead.
        if self.rendezvous.is_some() { Ok(()) } else { Err(Errno::NETDOWN) }
    }

    /// Sees to what woke us, or would: `true` if there may be frames now.
    fn attend(&mut self) -> Result<bool, Errno> {
        let mut space = [const { MaybeUninit::uninit() }; 3];
        let (ready, _) = epoll::wait(&self.epoll, &mut space, Some(&Timespec::default()))?;
        let mut may_have_frames = false;
        for event in ready {
            match event.data.u64() {
                BELL => may_have_frames |= self.link.as_ref().is_some_and(|it| silence(&it.bell)),
                HANG_UP => self.unplug()?,
                _ => {
                    let has_peer = self.link.is_some();
                    let met = self.rendezvous.as_ref().map(|it| it.next(has_peer)).transpose()?;
                    if let Some(met) = met.flatten() {
                        self.plug(met)?;
                        may_have_frames = true;
                    }
                }
            }
        }
        Ok(may_have_frames)
    }

    fn frames(
        &mut self,
        frames_max: usize,
        each: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let Some(link) = &mut self.link else { return Ok(0) };
        match link.reader.burst(frames_max, &mut self.frame, each) {
            Ok(taken) => Ok(taken),
            Err(_) => self.unplug().map(|()| 0),
        }
    }
}

impl Receive for Incoming {
    fn burst(
        &mut self,
        frames_max: usize,
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let taken = self.frames(frames_max, &mut each)?;
        if taken == 0 && self.attend()? {
            return self.frames(frames_max, &mut each);
        }
        Ok(taken)
    }
}

impl Outgoing {
    fn new() -> Outgoing {
        Outgoing { outlet: None, frame: Box::new([0; FRAME_BYTES_MAX]), lost: 0 }
    }
}

impl Transmit for Outgoing {
    fn has_room(&mut self) -> bool {
        self.outlet.as_mut().is_none_or(|outlet| outlet.writer.has_room())
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let outcome = fill(&mut self.frame[..length]);
        let Some(outlet) = &mut self.outlet else { return outcome };
        if !outlet.writer.has_room() {
            self.lost += 1;
        } else if outlet.writer.push(&self.frame[..length]) {
            ring(&outlet.bell);
        }
        outcome
    }

    fn kick(&mut self) -> Result<(), Errno> {
        if let Some(outlet) = &mut self.outlet
            && outlet.writer.show()
        {
            ring(&outlet.bell);
        }
        Ok(())
    }
}

impl Port for Mem {
    type Receive = Incoming;
    type Transmit = Outgoing;

    fn halves(&mut self) -> (&mut Incoming, &mut Outgoing) {
        if let Some(outlet) = self.receive.news.take() {
            self.transmit.outlet = outlet;
        }
        (&mut self.receive, &mut self.transmit)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: MTU, checksums: Checksums::Right }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn lost(&self) -> Lost {
        // What arrives has its place, or is lost at its sender's end.
        Lost { arrived: 0, leaving: self.transmit.lost }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.receive.epoll.as_fd()
    }
}

fn watch(epoll: &OwnedFd, descriptor: BorrowedFd<'_>, what: u64) -> Result<(), Errno> {
    epoll::add(epoll, descriptor, epoll::EventData::new_u64(what), epoll::EventFlags::IN)
}

/// A bell that was rung too often to count has been rung.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Takes all ringing away; `true` if there was some.
fn silence(bell: &OwnedFd) -> bool {
    rustix::io::read(bell, &mut [0_u8; 8]).is_ok()
}

#[cfg(test)]
mod tests;
