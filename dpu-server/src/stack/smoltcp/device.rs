//! One packet in, at most one out: how smoltcp's interface sees a port. It answers what belongs to no connection.
//!
//! smoltcp works on IP packets here. The Ethernet header is ours.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::link::{ETHERNET_BYTES, Header};
use mqttshim_port::{Capabilities, Transmit};

/// See the module. Lives for one call of smoltcp.
pub(super) struct OnePacket<'a, T> {
    /// What arrived.
    pub(super) arrived: Option<&'a [u8]>,
    pub(super) out: &'a mut T,
    /// What to put before what leaves.
    pub(super) header: Header,
    pub(super) capabilities: Capabilities,
}

impl<T: Transmit> Device for OnePacket<'_, T> {
    type RxToken<'b>
        = Arrived<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Leaving<'b, T>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Leaving<'_, T>)> {
        let packet = self.arrived.take()?;
        Some((Arrived(packet), Leaving { out: self.out, header: &self.header }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_, T>> {
        self.out.has_room().then_some(Leaving { out: self.out, header: &self.header })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(&self.capabilities)
    }
}

/// In smoltcp's words.
pub(super) fn capabilities(port: &Capabilities) -> DeviceCapabilities {
    let mut it = DeviceCapabilities::default();
    it.medium = Medium::Ip;
    it.max_transmission_unit = port.mtu;
    // What arrives was verified before.
    it.checksum.tcp = Checksum::Tx;
    it.checksum.ipv4 = Checksum::Tx;
    it
}

/// The packet that arrived.
pub(super) struct Arrived<'a>(&'a [u8]);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a packet to send.
pub(super) struct Leaving<'a, T> {
    out: &'a mut T,
    header: &'a Header,
}

impl<T: Transmit> TxToken for Leaving<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        self.out.frame(ETHERNET_BYTES + length, |frame| {
            let (header, packet) = frame.split_at_mut(ETHERNET_BYTES);
            let outcome = f(packet);
            header.copy_from_slice(&self.header.of(packet));
            outcome
        })
    }
}
