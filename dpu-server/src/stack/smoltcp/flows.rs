//! From a segment's ends to its connection.
//!
//! A table of connections' numbers alone: the ends lie with the connection, which a segment needs anyway. The hash is SipHash with
//! a key from the machine's randomness, so that nobody can choose ends that fall into one place; the same function under
//! a key of its own gives initial sequence numbers (RFC 6528).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashTable;
use smoltcp::wire::TcpSeqNumber as Number;

use super::connections::Connections;
use super::listener::Name;
use super::names::Names;
use super::segment::Flow;

/// How fast initial sequence numbers grow: by one in so many microseconds (RFC 6528 §3).
const MICROSECONDS_PER_NUMBER: u128 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Flows {
    table: HashTable<u32>,
    /// Of connections whose flow is in the table, which are those that are not over.
    names: Names,
    key: RandomState,
    key_of_numbers: RandomState,
}

impl Flows {
    /// The connection of a flow.
    pub(super) fn find(&self, flow: &Flow, connections: &Connections) -> Option<u32> {
        let is_it = |id: &u32| connections[*id].flow == *flow;
        self.table.find(hash(&self.key, flow), is_it).copied()
    }

    /// Takes in a connection whose flow has none.
    pub(super) fn insert(&mut self, id: u32, connections: &Connections) {
        let key = &self.key;
        let of = |id: &u32| hash(key, &connections[*id].flow);
        self.table.insert_unique(of(&id), id, of);
        self.names.add(&connections[id].name);
    }

    /// Forgets a connection, which must still be in `connections`.
    pub(super) fn remove(&mut self, id: u32, connections: &Connections) {
        let hash = hash(&self.key, &connections[id].flow);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == id) {
            entry.remove();
            self.names.remove(&connections[id].name);
        }
    }

    /// Whether a connection that is not over has the name (`bind(2)`, EADDRINUSE).
    pub(super) fn is_in_use(&self, name: &Name) -> bool {
        self.names.collide_with(name)
    }

    /// The first sequence number of a connection that begins now: nobody who does not know the key can guess it, and it
    /// lies ahead of those that an earlier connection of the same flow used (RFC 6528 §3).
    pub(super) fn first_number(&self, flow: &Flow, now: Duration) -> Number {
        let clock = (now.as_micros() / MICROSECONDS_PER_NUMBER) as u32;
        Number(clock.wrapping_add(hash(&self.key_of_numbers, flow) as u32) as i32)
    }
}

fn hash(key: &RandomState, flow: &Flow) -> u64 {
    let mut hasher = key.build_hasher();
    let ports = (u64::from(flow.local.port()) << 16 | u64::from(flow.remote.port())).to_ne_bytes();
    match (flow.local.ip(), flow.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&local.octets());
            bytes[4..8].copy_from_slice(&remote.octets());
            bytes[8..].copy_from_slice(&ports);
            hasher.write(&bytes);
        }
        (local, remote) => {
            for ip in [local, remote] {
                match ip {
                    IpAddr::V4(ip) => hasher.write(&ip.octets()),
                    IpAddr::V6(ip) => hasher.write(&ip.octets()),
                }
            }
            hasher.write(&ports);
        }
    }
    hasher.finish()
}
