//! All connections, by number, each with its lane.
//!
//! ```text
//! deliver ─► lane: numbers, headers ─► frame          the connection is not looked at
//! anything else ─► get_mut ─► what left is noted ─► connection ─► … ─► `closed` ─► the lane opens again
//! ```
//!
//! Nobody gets a connection to change it, before it knows what left by its lane. Where that is because a segment came, the octets of
//! these messages stay owed until it was looked at: most of them it acknowledges, and then they are never copied
//! ([`Connections::close_lane`], [`Connections::pay`]). Who only reads one (`get`, `iter`, `[id]`) sees it as it was when it was told last: its
//! names, its stage and its state hold, queues and deadlines may not.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::connection::Connection;
use super::lane::{Lane, Run};
use super::messages::Messages;

/// See the module.
#[derive(Default)]
pub(super) struct Connections {
    slab: Slab<Connection>,
    /// One for each number that was ever in use.
    lanes: Vec<Lane>,
    /// By number, a deadline in milliseconds that is in the wheel unless it has come.
    far_deadlines: Vec<u64>,
    pub(super) messages: Messages,
    /// Those whose lanes were closed, perhaps more than once.
    closed: Vec<u32>,
}

impl Connections {
    #[cfg(any(test, fuzzing))]
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Panics unless each message is held by those lanes that have it, and by nobody else.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        let mut held = std::collections::BTreeMap::new();
        for number in self.lanes.iter().flat_map(|lane| lane.untold().numbers()) {
            *held.entry(number).or_insert(0) += 1;
        }
        self.messages.check(&held);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slab.iter().map(|(id, connection)| (id as u32, connection))
    }

    /// Takes one in; says its number.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let id = self.slab.insert(connection);
        if self.lanes.len() <= id {
            self.lanes.resize_with(id + 1, Lane::default);
            self.far_deadlines.resize(id + 1, 0);
        }
        self.lanes[id] = Lane::default();
        self.far_deadlines[id] = 0;
        id as u32
    }

    /// Takes one out, which there is.
    pub(super) fn remove(&mut self, id: u32) -> Connection {
        let run = self.lanes[id as usize].close();
        self.lanes[id as usize] = Lane::default();
        self.release(run);
        self.slab.remove(id as usize)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Connection> {
        self.slab.get(id as usize)
    }

    /// One, to change it: its lane is closed.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        if self.lanes.get(id as usize)?.is_open() {
            let run = self.close_lane(id);
            self.pay(id, run);
        }
        self.slab.get_mut(id as usize)
    }

    /// Which deadline of one lies far ahead in the wheel, unless it has come.
    pub(super) fn far_deadline(&mut self, id: u32) -> &mut u64 {
        &mut self.far_deadlines[id as usize]
    }

    /// The lane of one that there is.
    #[inline]
    pub(super) fn lane(&self, id: u32) -> &Lane {
        &self.lanes[id as usize]
    }

    #[inline]
    pub(super) fn lane_mut(&mut self, id: u32) -> &mut Lane {
        &mut self.lanes[id as usize]
    }

    /// The lane of one, and all messages.
    #[inline]
    pub(super) fn lane_and_messages(&mut self, id: u32) -> (&mut Lane, &mut Messages) {
        (&mut self.lanes[id as usize], &mut self.messages)
    }

    /// Closes a lane, and tells its connection what left. The octets stay owed until [`Self::pay`].
    #[must_use = "what is owed has to be paid"]
    pub(super) fn close_lane(&mut self, id: u32) -> Run {
        let lane = &mut self.lanes[id as usize];
        if !lane.is_open() {
            return Run::default();
        }
        self.closed.push(id);
        let run = lane.close();
        if !run.is_empty() {
            let socket = &mut self.slab[id as usize].socket;
            for number in run.numbers() {
                let message = self.messages.get(number);
                socket.note_sent(message.at, message.bytes.len());
            }
        }
        run
    }

    /// Gives a connection what it owes of these messages, which are the last it was told of.
    pub(super) fn pay(&mut self, id: u32, run: Run) {
        if run.is_empty() {
            return;
        }
        let socket = &mut self.slab[id as usize].socket;
        if socket.owed() > 0 {
            let length = |number| self.messages.get(number).bytes.len();
            let all: usize = run.numbers().map(length).sum();
            let mut acknowledged = all - socket.owed();
            for number in run.numbers() {
                let bytes = &self.messages.get(number).bytes;
                let known = acknowledged.min(bytes.len());
                acknowledged -= known;
                socket.pay(&bytes[known..]);
            }
        }
        self.release(run);
    }

    fn release(&mut self, run: Run) {
        for number in run.numbers() {
            self.messages.release(number);
        }
    }

    /// Takes the number of one whose lane was closed since.
    pub(super) fn pop_closed(&mut self) -> Option<u32> {
        self.closed.pop()
    }
}

impl Index<u32> for Connections {
    type Output = Connection;

    fn index(&self, id: u32) -> &Connection {
        &self.slab[id as usize]
    }
}

/// As [`Connections::get_mut`].
impl IndexMut<u32> for Connections {
    fn index_mut(&mut self, id: u32) -> &mut Connection {
        self.get_mut(id).expect("a connection with this number")
    }
}
