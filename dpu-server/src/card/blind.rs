//! What the card cannot see into at a broker, by name, for the operator: which plugin, whose connection.
//!
//! The core counts blind spots and decides by the count; here is what they are called. Names are for people: at most [`NAMES_MAX`] of a
//! kind, the latest. A program says that a socket outside is gone, and not which: the names of a kind go with the last.

use mqttshim_schema::SessionId;

use super::{Card, Session};
use crate::attach::Attach;
use crate::mqtt::{ConnId, Reason};
use crate::stack::Stack;

/// Names kept of one kind.
const NAMES_MAX: usize = 8;

/// A blind spot.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Blind {
    /// Why it sends PUBLISHes to the broker.
    pub reason: Reason,
    /// A file, an address.
    pub name: String,
}

/// Things of one kind: how many there are, and what the latest are called.
#[derive(Debug, Default)]
struct Named {
    count: i64,
    names: Vec<String>,
}

impl Named {
    fn change(&mut self, by: i32, name: &str) {
        self.count += i64::from(by);
        if self.count <= 0 {
            self.names.clear();
        }
        if by > 0 && !name.is_empty() {
            self.names.retain(|known| known != name);
            self.names.push(name.to_owned());
            let too_many = self.names.len().saturating_sub(NAMES_MAX);
            self.names.drain(..too_many);
        }
    }
}

/// The names of one broker's blind spots, but for its connections on the card, which the core knows.
#[derive(Debug, Default)]
pub(super) struct BlindNames {
    listeners: Named,
    connections: Named,
    plugins: Named,
}

impl BlindNames {
    fn all(&self) -> impl Iterator<Item = Blind> {
        let kinds = [
            (Reason::OutsideListener, &self.listeners),
            (Reason::OutsideConnection, &self.connections),
            (Reason::Plugin, &self.plugins),
        ];
        kinds.into_iter().flat_map(|(reason, named)| {
            named.names.iter().map(move |name| Blind { reason, name: name.clone() })
        })
    }
}

impl<A: Attach, S: Stack> Card<A, S> {
    /// A broker has more listeners or connections outside the card, or fewer.
    pub(super) fn outside(
        &mut self,
        session: SessionId,
        (listeners, connections): (i32, i32),
        name: &str,
    ) {
        let index = self.session(session);
        let session = &mut self.sessions[index];
        session.core.handle_outside(listeners, connections);
        session.blind.listeners.change(listeners, name);
        session.blind.connections.change(connections, name);
    }

    /// A broker's program has loaded a shared object.
    pub(super) fn library_loaded(&mut self, session: SessionId, path: &str) {
        let index = self.session(session);
        let session = &mut self.sessions[index];
        if session.core.handle_plugin(path) {
            session.blind.plugins.change(1, path);
        }
    }

    /// The blind spots of one broker.
    pub(super) fn blind_spots(&self, session: &Session) -> Vec<Blind> {
        let mut all: Vec<Blind> = session.blind.all().collect();
        let opaque = session.core.opaque().filter_map(|conn| {
            let address = self.client_address(conn)?;
            Some(Blind { reason: Reason::OpaqueConnection, name: address.to_string() })
        });
        all.extend(opaque);
        all
    }

    fn client_address(&self, ConnId(key): ConnId) -> Option<std::net::SocketAddr> {
        self.sockets.get(key as usize)?.peer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_kept_each_once_until_the_last_of_their_kind_is_gone() {
        let mut named = Named::default();
        for number in 0..20 {
            named.change(1, &format!("10.0.0.{number}:1883"));
        }
        named.change(1, "10.0.0.19:1883");
        assert_eq!(named.names.len(), NAMES_MAX);
        assert_eq!(named.names.last().unwrap(), "10.0.0.19:1883");
        named.change(-20, "");
        assert_eq!(named.names.len(), NAMES_MAX, "which one is left is not known");
        named.change(-1, "");
        assert!(named.names.is_empty());
    }
}
