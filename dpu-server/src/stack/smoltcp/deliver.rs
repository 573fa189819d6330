//! One message to many connections: a segment each, by its lane.
//!
//! What cannot leave as one segment now is refused, and goes the usual way: `calls::send`.

use std::time::Duration;

use smoltcp::time::Instant;

use super::clock;
use super::segment::HOP_LIMIT;
use super::tcp::Tcp;
use super::template::Template;
use super::wheel::Due;
use crate::stack::Key;
use mqttshim_port::Transmit;

impl Tcp {
    /// Sends the batch's message `place`, whole and at once, at this instant of smoltcp's clock; false: nothing of it was,
    /// and none is until the next send.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        key: Key,
        place: u32,
        message: &[u8],
        out: &mut impl Transmit,
    ) -> bool {
        let Some(id) = self.sockets.connection(key) else { return false };
        if !self.connections.lane(id).takes(message.len()) && !self.makes_room(now, id, message) {
            return self.refuse(id);
        }
        if self.budget.is_exhausted() || !out.has_room() {
            return self.refuse(id);
        }
        let number = self.connections.messages.number(place, message, now);
        // What does not follow goes when the connection has been told of what is before it.
        if !self.connections.lane(id).follows(number) && !self.makes_room(now, id, message) {
            return self.refuse(id);
        }
        let (lane, messages) = self.connections.lane_and_messages(id);
        let departure = lane.send(now, number, message.len());
        let sum = messages.hold(number).sum;
        self.budget.message_bytes = messages.bytes();
        lane.template.write(out, departure.numbers, message, sum);
        if let Some(at) = departure.deadline {
            self.wheel.put(Due { id, at });
        }
        true
    }

    /// Looks at a connection whose lane does not take a message; whether it takes any then that is so long.
    #[cold]
    fn makes_room(&mut self, now: Instant, id: u32, message: &[u8]) -> bool {
        !self.connections.lane(id).has_refused()
            && self.open_lane(now, id)
            && self.connections.lane(id).takes(message.len())
    }

    #[cold]
    fn refuse(&mut self, id: u32) -> bool {
        // What it has comes before what is refused now.
        self.connections.lane_mut(id).refuse();
        false
    }

    /// Opens a connection's lane, if it can send at all now. What it was told of may have made its buffer grow.
    fn open_lane(&mut self, now: Instant, id: u32) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        self.budget.count(connection);
        if self.connections.lane(id).has_refused() {
            return false;
        }
        let connection = &self.connections[id];
        let Some(mac) = connection.mac.filter(|_| !connection.is_dirty) else { return false };
        let hop_limit = connection.socket.hop_limit().unwrap_or(HOP_LIMIT);
        if !self.connections.lane(id).template.is_of(mac, hop_limit) {
            let flow = &self.connections[id].flow;
            let template = Template::new(&self.link.header(mac), flow, hop_limit);
            self.connections.lane_mut(id).template = template;
        }
        let mss = self.mtu() - self.connections.lane(id).template.packet_headers();
        let Some(connection) = self.connections.get(id) else { return false };
        let allowance = connection.socket.allowance(now, mss);
        let Some(allowance) = allowance.filter(|it| it.octets > 0) else { return false };
        let patience = connection.patience;
        self.connections.lane_mut(id).open(&allowance, patience);
        if let Some(at) = allowance.poll_at {
            self.arm_at(id, clock::millisecond(at));
        }
        true
    }

    /// The batch is over.
    pub(super) fn end_batch(&mut self) {
        self.connections.messages.end_batch();
        self.budget.message_bytes = self.connections.messages.bytes();
    }

    /// Opens the lanes of connections that somebody has looked at: while they are at hand.
    pub(super) fn reopen(&mut self, now: Duration) {
        let now = clock::instant(now);
        while let Some(id) = self.connections.pop_closed() {
            if !self.connections.lane(id).is_open() {
                self.open_lane(now, id);
            }
        }
        self.budget.message_bytes = self.connections.messages.bytes();
    }
}
