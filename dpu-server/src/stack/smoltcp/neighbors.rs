//! Who is asked for because the card connects to it, or beyond it.

use std::net::IpAddr;
use std::time::Duration;

use rustix::io::Errno;

use super::connection::Stage;
use super::link::{ASK_INTERVAL, ASKS_MAX};
use super::tcp::Tcp;
use mqttshim_port::Transmit;

/// A neighbour that is asked for.
#[derive(Debug)]
pub(super) struct Search {
    hop: IpAddr,
    asked: u32,
    /// When to ask again, or to give up.
    next: Duration,
    /// Connections that wait for it.
    waiting: Vec<(u32, u64)>,
}

impl Tcp {
    /// Finds where a connection's frames go, at once or by asking. Whoever has been silent for long is asked whether it has moved; until
    /// it answers, frames go where it was.
    pub(super) fn seek(&mut self, now: Duration, id: u32) {
        let connection = &mut self.connections[id];
        let Some(hop) = self.link.next_hop(connection.flow.remote.ip()) else { return };
        let waiter = (id, connection.serial);
        if let Some(mac) = self.link.neighbor(hop) {
            connection.mac = Some(mac);
            self.soil(id);
            if self.link.is_fresh(now, hop) {
                return;
            }
        }
        match self.searches.iter_mut().find(|search| search.hop == hop) {
            Some(search) => search.waiting.push(waiter),
            None => self.searches.push(Search { hop, asked: 0, next: now, waiting: vec![waiter] }),
        }
    }

    /// The same of a connection of the card's own on which something is due.
    pub(super) fn seek_again(&mut self, now: Duration, id: u32) {
        if self.connections.get(id).is_some_and(|it| it.mac.is_some() && !it.follows) {
            self.seek(now, id);
        }
    }

    /// A frame may have told where a neighbour is.
    pub(super) fn found(&mut self, now: Duration) {
        let mut at = 0;
        while let Some(search) = self.searches.get(at) {
            let told = self.link.neighbor(search.hop);
            let Some(mac) = told.filter(|_| self.link.is_fresh(now, search.hop)) else {
                at += 1;
                continue;
            };
            for (id, serial) in self.searches.swap_remove(at).waiting {
                if let Some(connection) = self.connections.get_mut(id)
                    && connection.serial == serial
                {
                    connection.mac = Some(mac);
                    self.soil(id);
                }
            }
        }
    }

    /// Asks where it is time to, and gives up where that was in vain.
    pub(super) fn ask(&mut self, now: Duration, out: &mut impl Transmit) {
        let mut at = 0;
        while let Some(search) = self.searches.get_mut(at) {
            if search.next > now || !out.has_room() {
                at += 1;
            } else if search.asked < ASKS_MAX {
                search.asked += 1;
                search.next = now + ASK_INTERVAL;
                self.link.ask(search.hop, out);
                at += 1;
            } else {
                let search = self.searches.swap_remove(at);
                self.link.forget(search.hop);
                for (id, serial) in search.waiting {
                    self.is_unreachable(id, serial);
                }
            }
        }
    }

    fn is_unreachable(&mut self, id: u32, serial: u64) {
        if let Some(connection) = self.connections.get_mut(id)
            && connection.serial == serial
            && connection.stage == Stage::Connecting
        {
            connection.error = Some(Errno::HOSTUNREACH);
            self.tell(id);
        }
    }

    /// When to ask next.
    pub(super) fn next_ask(&self) -> Option<Duration> {
        self.searches.iter().map(|search| search.next).min()
    }
}
