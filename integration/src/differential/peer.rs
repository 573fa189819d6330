//! One connection of one client: writes what it is told to, reads what comes, acknowledges as MQTT asks, and records.
//!
//! ```text
//! steps ──► out: one write an entry ──► socket ──► partial ──► events
//!            ▲                                         │
//!            └──── PUBACK, PUBREC, PUBREL, PUBCOMP ────┘   (those for the broker's messages may be withheld)
//! ```
//!
//! The socket never blocks; who waits is [`mod@super::play`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::encode::PINGREQ;
use super::record::{self, Event};
use crate::mqtt::{Message, Packet, Version, packet};
use crate::network;

/// Receive buffer of a client with a small window, in bytes; the kernel doubles it.
const SMALL_WINDOW_BYTES: usize = 16 * 1024;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    AwaitConnack,
    Live,
    /// Refused, or said goodbye: the broker is to close.
    Leaving,
    Closed,
}

/// What follows when everything is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    Shutdown,
    Reset,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) client: usize,
    pub(super) version: Version,
    pub(super) state: State,
    pub(super) events: Vec<Event>,
    pub(super) is_stalled: bool,
    pub(super) is_anonymous: bool,
    pub(super) is_holding: bool,
    pub(super) ending: Option<Ending>,
    /// Number of the group in which the connection ended.
    pub(super) closed_in: Option<usize>,
    /// How many messages it takes before it acknowledges some; `None`: it did not say.
    receive_maximum: Option<u16>,
    /// Messages it has not acknowledged.
    unacknowledged: u16,
    /// Their Packet Identifiers.
    in_use: HashSet<u16>,
    /// PINGREQs without an answer.
    pub(super) pings_out: usize,
    stream: Option<TcpStream>,
    partial: Vec<u8>,
    out: VecDeque<Vec<u8>>,
    held: Vec<Vec<u8>>,
    next_id: u16,
    /// Topics the broker gave aliases to.
    aliases: HashMap<u16, String>,
    /// Group of the last message sent under each Packet Identifier.
    groups: HashMap<u16, usize>,
    /// Packet Identifiers of what the broker has yet to acknowledge.
    awaited: HashSet<u16>,
}

impl Peer {
    pub(super) fn open(
        port: u16,
        client: usize,
        version: Version,
        has_small_window: bool,
        receive_maximum: Option<u16>,
    ) -> io::Result<Peer> {
        // A program that is started meanwhile would keep it open beyond its end.
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if has_small_window {
            sockopt::set_socket_recv_buffer_size(&socket, SMALL_WINDOW_BYTES)?;
        }
        rustix::net::connect(&socket, &SocketAddrV4::new(network::host(), port))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Peer {
            client,
            version,
            state: State::AwaitConnack,
            events: Vec::new(),
            is_stalled: false,
            is_anonymous: false,
            is_holding: false,
            ending: None,
            closed_in: None,
            receive_maximum,
            unacknowledged: 0,
            in_use: HashSet::new(),
            pings_out: 0,
            stream: Some(stream),
            partial: Vec::new(),
            out: VecDeque::new(),
            held: Vec::new(),
            next_id: 0,
            aliases: HashMap::new(),
            groups: HashMap::new(),
            awaited: HashSet::new(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    pub(super) fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    /// A Packet Identifier for a message of `group`, or for a request.
    pub(super) fn take_id(&mut self, group: usize) -> u16 {
        self.next_id += 1;
        self.groups.insert(self.next_id, group);
        self.awaited.insert(self.next_id);
        self.next_id
    }

    /// Whether the broker has acknowledged all it was sent.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Waits no longer for what it has not acknowledged.
    pub(super) fn forget_awaited(&mut self) {
        self.awaited.clear();
    }

    /// Queues bytes for one write.
    pub(super) fn queue(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.out.push_back(bytes);
        }
    }

    pub(super) fn ping(&mut self) {
        self.pings_out += 1;
        self.queue(PINGREQ.to_vec());
    }

    pub(super) fn release_acks(&mut self) {
        self.is_holding = false;
        for ack in std::mem::take(&mut self.held) {
            self.send_ack(ack);
        }
    }

    pub(super) fn has_output(&self) -> bool {
        self.stream.is_some() && (!self.out.is_empty() || self.ending.is_some())
    }

    /// One write, or what follows the last. An error is the end that reading will find.
    pub(super) fn write(&mut self) {
        let Some(mut stream) = self.stream.as_ref() else { return };
        if let Some(front) = self.out.front_mut() {
            match stream.write(front) {
                Ok(taken) if taken < front.len() => drop(front.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) => drop(self.out.pop_front()),
                Err(_) => self.out.clear(),
            }
        } else if let Some(ending) = self.ending.take() {
            match ending {
                // It fails if the broker closed already: as good.
                Ending::Shutdown => drop(stream.shutdown(Shutdown::Write)),
                Ending::Reset => {
                    let linger = Some(Duration::ZERO);
                    sockopt::set_socket_linger(stream, linger).expect("our own socket");
                    self.close();
                }
            }
        }
    }

    /// Reads what is there.
    pub(super) fn read(&mut self) {
        let Some(mut stream) = self.stream.as_ref() else { return };
        let mut chunk = [0; 64 * 1024];
        match stream.read(&mut chunk) {
            Ok(0) => self.close(),
            Ok(taken) => {
                self.partial.extend(&chunk[..taken]);
                self.take_packets();
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.close(),
        }
    }

    /// Gives up waiting for something.
    pub(super) fn give_up(&mut self, what: &'static str) {
        self.events.push(Event::Silence(what));
        self.close();
    }

    fn close(&mut self) {
        if let Some(head) = self.partial.first() {
            self.events.push(Event::Cut(head >> 4, self.partial.len()));
        }
        self.events.push(Event::Closed);
        self.state = State::Closed;
        self.stream = None;
        self.out.clear();
    }

    fn take_packets(&mut self) {
        let mut start = 0;
        while let Some((packet, used)) = Packet::decode(&self.partial[start..], self.version) {
            start += used;
            self.handle(packet);
        }
        self.partial.drain(..start);
    }

    fn handle(&mut self, arrived: Packet) {
        let (head, body) = match arrived {
            Packet::Publish(mut message) => {
                self.resolve_alias(&mut message);
                self.events.push(Event::from(&message));
                if message.qos > 0 {
                    self.unacknowledged += 1;
                }
                if self.receive_maximum.is_some_and(|max| self.unacknowledged > max) {
                    self.events.push(Event::Excess);
                }
                if message.id.is_some_and(|id| !self.in_use.insert(id)) {
                    self.events.push(Event::Reused);
                }
                match (message.qos, message.id) {
                    (1, Some(id)) => self.acknowledge(packet(0x40, &id.to_be_bytes())),
                    (2, Some(id)) => self.acknowledge(packet(0x50, &id.to_be_bytes())),
                    _ => {}
                }
                return;
            }
            Packet::Other { head, body } => (head, body),
        };
        if head >> 4 == 13 {
            match self.pings_out {
                0 => self.events.push(Event::StrayPing),
                _ => self.pings_out -= 1,
            }
            return;
        }
        let event = Event::read(head, &body, self.version, |id| self.groups.get(&id).copied());
        if let Event::Connack { code, .. } = event
            && self.state == State::AwaitConnack
        {
            self.state = if code == 0 { State::Live } else { State::Leaving };
        }
        self.events.push(event);
        if let (4 | 7 | 9 | 11, &[high, low, ..]) = (head >> 4, &body[..]) {
            self.awaited.remove(&u16::from_be_bytes([high, low]));
        }
        match (head >> 4, &body[..]) {
            // A PUBREC with an error ends the exchange [MQTT-4.3.3-4].
            (5, [_, _, code, ..]) if *code >= 0x80 => {}
            (5, [high, low, ..]) => self.queue(packet(0x62, &[*high, *low])),
            (6, [high, low, ..]) => self.acknowledge(packet(0x70, &[*high, *low])),
            _ => {}
        }
    }

    /// Which messages the broker gives an alias, and which, is its choice (MQTT 5 §3.3.2.3.4): the topic is what counts.
    fn resolve_alias(&mut self, message: &mut Message) {
        let Some((alias, rest)) = record::split_alias(&message.properties) else { return };
        message.properties = rest;
        if message.topic.is_empty() {
            message.topic = self.aliases.get(&alias).cloned().unwrap_or_default();
        } else {
            self.aliases.insert(alias, message.topic.clone());
        }
    }

    fn acknowledge(&mut self, ack: Vec<u8>) {
        if self.is_holding {
            self.held.push(ack);
        } else {
            self.send_ack(ack);
        }
    }

    /// PUBACK and PUBCOMP end an exchange, PUBREC does not (MQTT 5 §4.9).
    fn send_ack(&mut self, ack: Vec<u8>) {
        if matches!(ack[0] >> 4, 4 | 7) {
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            self.in_use.remove(&u16::from_be_bytes([ack[2], ack[3]]));
        }
        self.queue(ack);
    }
}
