//! What leaves, and when: the list of connections with something to send, and their deadlines.

use std::convert::Infallible;
use std::time::Duration;

use smoltcp::socket::PollAt;

use super::clock;
use super::connection::Stage;
use super::emit::emit;
use super::tcp::Tcp;
use super::wheel::Due;
use mqttshim_port::Transmit;

/// A connection whose deadline is that close is looked at again: a retransmission time-out, or a few.
const REST: Duration = Duration::from_secs(1);

impl Tcp {
    /// Puts a connection on the dirty list if it has something to send now, and into the wheel for later.
    pub(super) fn schedule(&mut self, now: Duration, id: u32) {
        let connection = &mut self.connections[id];
        if connection.is_dirty {
            return;
        }
        connection.bound_silence(now);
        let context = self.iface.context();
        context.set_now(clock::instant(now));
        let at = connection.socket.poll_at(context);
        self.arm(now, id, at);
    }

    /// Notes when smoltcp wants a connection looked at again.
    fn arm(&mut self, now: Duration, id: u32, at: PollAt) {
        match at {
            PollAt::Now => self.soil(id),
            PollAt::Time(at) if at <= clock::instant(now) => self.soil(id),
            PollAt::Time(at) => self.arm_at(id, clock::millisecond(at)),
            PollAt::Ingress => self.reap(id),
        }
    }

    /// Sets a connection's deadline, in milliseconds, unless an earlier one is set.
    ///
    /// One that lies far ahead stays in the wheel when a nearer one takes its place, and counts again when that one has come: else
    /// a keep-alive of two hours would leave an entry for each message of these hours.
    pub(super) fn arm_at(&mut self, id: u32, at: u64) {
        let now = self.wheel.now();
        let far = *self.connections.far_deadline(id);
        if now < far && far <= at {
            self.connections.lane_mut(id).arm(far);
        } else if let Some(at) = self.connections.lane_mut(id).arm(at) {
            self.wheel.put(Due { id, at });
            // One that is in the wheel already is the later one.
            if far <= now && at > now + REST.as_millis() as u64 {
                *self.connections.far_deadline(id) = at;
            }
        }
    }

    /// Puts a connection on the dirty list.
    pub(super) fn soil(&mut self, id: u32) {
        let connection = &mut self.connections[id];
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// Forgets a connection that is over, unless somebody holds it still.
    fn reap(&mut self, id: u32) {
        let connection = &self.connections[id];
        let is_held =
            matches!(connection.stage, Stage::Held | Stage::Connecting | Stage::Queued(_));
        if connection.is_over() && !is_held {
            self.remove(id);
        }
    }

    /// Sends what there is to send, as long as the port takes it; whoever was looked at is ready for deliveries then.
    pub(super) fn flush(&mut self, now: Duration, out: &mut impl Transmit) {
        self.ask(now, out);
        self.transmit_dirty(now, out);
        self.reopen(now);
    }

    fn transmit_dirty(&mut self, now: Duration, out: &mut impl Transmit) {
        for _ in 0..self.dirty.len() {
            if !out.has_room() {
                return;
            }
            let Some(id) = self.dirty.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(id) else { continue };
            if std::mem::take(&mut connection.is_dirty) {
                self.transmit(now, id, out);
            }
        }
    }

    /// Sends what one connection has to send, as long as the port takes it.
    pub(super) fn transmit(&mut self, now: Duration, id: u32, out: &mut impl Transmit) {
        let connection = &mut self.connections[id];
        let Some(mac) = connection.mac else {
            // Nobody knows yet where to send its first segment.
            return self.reap(id);
        };
        let header = self.link.header(mac);
        connection.bound_silence(now);
        let state = connection.socket.state();
        let context = self.iface.context();
        context.set_now(clock::instant(now));
        let at = loop {
            if !out.has_room() {
                break PollAt::Now;
            }
            let mut has_sent = false;
            let Ok(()) = connection.socket.dispatch(context, |_, meta, (ip, says)| {
                emit(out, &header, &ip, &says, meta);
                has_sent = true;
                Ok::<(), Infallible>(())
            });
            let at = connection.socket.poll_at(context);
            if !has_sent || at != PollAt::Now {
                break at;
            }
        };
        if connection.socket.state() != state || connection.is_over() {
            // A deadline ended it, or it has said its last.
            self.noted(now, id, None);
        }
        self.arm(now, id, at);
    }

    /// Deadlines that came.
    pub(super) fn expire(&mut self, now: Duration) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now.as_millis() as u64, &mut due);
        for entry in due.drain(..) {
            if self.connections.lane_mut(entry.id).disarm(entry.at) {
                self.seek_again(now, entry.id);
                self.schedule(now, entry.id);
                self.shrink(now, entry.id);
            }
        }
        self.due = due;
    }

    /// Has a connection, which may be gone, give back what it does not need.
    pub(super) fn shrink(&mut self, now: Duration, id: u32) {
        let soon = (now + REST).as_millis() as u64;
        let is_busy = !self.budget.is_exhausted() && self.connections.lane(id).is_armed_by(soon);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.shrink(is_busy);
            self.budget.count(connection);
        }
    }

    /// When something is due; `None`: nothing ever, by itself.
    pub(super) fn deadline(&self) -> Option<Duration> {
        if !self.dirty.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.wheel.next().map(Duration::from_millis);
        [timer, self.next_ask()].into_iter().flatten().min()
    }
}
