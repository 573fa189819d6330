//! Where the card's frames come from and go to.
//!
//! | port | frames | for |
//! |---|---|---|
//! | [`mem`] | shared memory with one peer | tests, and the bench: what a hardware queue costs |
//! | [`tap`] | a TAP device | laptops, containers, tests |
//! | [`xdp`] | an interface, past the kernel's stack (AF_XDP) | a card |
//!
//! A port has two halves, so that what a frame brings about can leave while the burst it came in goes on. [`prefetch`] is here because the
//! processor's instruction for it is unsafe code, which `sys` has alone.

#![deny(unsafe_code)]

pub mod mem;
#[allow(unsafe_code, reason = "memory shared with the kernel, and calls that no library makes")]
mod sys;
pub mod tap;
pub mod xdp;

pub use sys::prefetch;

use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// What a port does for the stack, and what it carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// The longest IP packet, in bytes.
    pub mtu: usize,
    /// What is known of the checksums of received TCP segments.
    pub checksums: Checksums,
}

/// What is known of the checksums of received TCP segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksums {
    /// Nothing: each is verified.
    Unknown,
    /// A sender on this machine may have left one to a device that there is none: its field holds the sum of the pseudo-header
    /// alone (CHECKSUM_PARTIAL, linux/skbuff.h), and such a one is believed. Every other is verified.
    MayBePartial,
    /// They are right, or were never made: frames that did not leave this machine's memory. None is looked at.
    Right,
}

/// Frames that were lost since a port was opened, because there was no room for them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lost {
    /// They arrived, as far as is known behind the port.
    pub arrived: u64,
    /// They were to leave.
    pub leaving: u64,
}

/// Frames that arrived.
pub trait Receive {
    /// Hands at most `frames_max` frames to `each`, in order, and gives their memory back. Says how many there were.
    ///
    /// # Errors
    /// When the port is gone.
    fn burst(&mut self, frames_max: usize, each: impl FnMut(&mut [u8])) -> Result<usize, Errno>;
}

/// What the port is to do to a frame with one TCP header and the payload of several segments. Its checksum field holds the sum of the
/// pseudo-header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unfinished {
    /// It is of IPv6, not of IPv4.
    pub is_v6: bool,
    /// Bytes before the TCP header.
    pub tcp_at: u16,
    /// Bytes before the payload.
    pub payload_at: u16,
    /// It is to be cut into frames with so many bytes of payload each; the last has what is left.
    pub segment_bytes: NonZeroU16,
}

/// Room for frames to send.
pub trait Transmit {
    /// The longest IP packet, in bytes, that may be left [`Unfinished`], beyond the MTU. `None`: frames leave as they are.
    const UNFINISHED_BYTES_MAX: Option<usize> = None;

    /// Whether a frame can be taken now.
    fn has_room(&mut self) -> bool;

    /// Takes a frame of `length` bytes, which `fill` writes whole. Without room it is lost, and counted.
    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// The same of a frame that is finished behind the port. Only for ports that say so ([`Transmit::UNFINISHED_BYTES_MAX`]).
    fn unfinished<R>(
        &mut self,
        length: usize,
        left: Unfinished,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        debug_assert!(Self::UNFINISHED_BYTES_MAX.is_some(), "{left:?} to a port that does nothing");
        self.frame(length, fill)
    }

    /// Lets the frames taken since the last call go.
    ///
    /// # Errors
    /// When the port is gone.
    fn kick(&mut self) -> Result<(), Errno>;

    /// Whether frames that were taken wait for another kick, because less could go at once.
    fn is_pending(&self) -> bool {
        false
    }
}

/// A network port: both halves, used by one thread.
pub trait Port {
    /// The receiving half.
    type Receive: Receive;
    /// The sending half.
    type Transmit: Transmit;

    /// Both halves.
    fn halves(&mut self) -> (&mut Self::Receive, &mut Self::Transmit);

    /// What it carries.
    fn capabilities(&self) -> Capabilities;

    /// The card's own address on it.
    fn mac(&self) -> Mac;

    /// What was lost.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// Readable while frames wait.
    fn readiness(&self) -> BorrowedFd<'_>;
}
