//! Who makes the flood: a client that never waits.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::Cell;
use crate::mqtt::{Client, Message, Packet, Version, encode_publish};

/// What a payload begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    pub(super) number: u64,
    /// Nanoseconds of this process.
    sent_ns: u64,
}

impl Stamp {
    fn payload(number: u64, bytes: usize) -> Vec<u8> {
        let sent_ns = u64::try_from(epoch().elapsed().as_nanos()).expect("tests take hours");
        let mut payload = [number.to_be_bytes(), sent_ns.to_be_bytes()].concat();
        payload.resize(bytes.max(payload.len()), filling(number));
        payload
    }

    /// `None`: this is nothing that was sent.
    pub(super) fn read(payload: &[u8]) -> Option<Stamp> {
        let number = u64::from_be_bytes(*payload.first_chunk()?);
        let sent_ns = u64::from_be_bytes(*payload.get(8..)?.first_chunk()?);
        let is_whole = payload[16..].iter().all(|&byte| byte == filling(number));
        is_whole.then_some(Stamp { number, sent_ns })
    }

    pub(super) fn sent(self) -> Instant {
        epoch() + Duration::from_nanos(self.sent_ns)
    }
}

/// So that bytes of two messages are not taken for one.
fn filling(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) stream: TcpStream,
    message: Message,
    payload_bytes: usize,
    unsent: Vec<u8>,
    partial: Vec<u8>,
    /// Messages so far, which is the number of the next one.
    pub(super) published: u64,
    /// Acknowledgements so far.
    pub(super) acknowledged: u64,
}

impl Publisher {
    /// # Panics
    /// If the broker refuses.
    #[track_caller]
    pub(super) fn connect(port: u16, topic: &str, cell: &Cell) -> Publisher {
        let message = Message::new(topic, []).qos(cell.qos);
        let is_retained = cell.road == super::Road::Broker;
        let stream = Client::new(port, "publisher").into_stream();
        stream.set_nonblocking(true).expect("our own socket");
        Publisher {
            stream,
            message: Message { is_retained, ..message },
            payload_bytes: cell.payload_bytes,
            unsent: Vec::new(),
            partial: Vec::new(),
            published: 0,
            acknowledged: 0,
        }
    }

    /// Whether every message that wants one has its acknowledgement.
    pub(super) fn is_told(&self) -> bool {
        self.message.qos == 0 || self.acknowledged == self.published
    }

    /// Bytes wait to be written.
    pub(super) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next message.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        let payload = Stamp::payload(self.published, self.payload_bytes);
        // Zero is no identifier.
        let id = u16::try_from(self.published % 65_000 + 1).expect("below 65,536");
        let id = (self.message.qos > 0).then_some(id);
        let message = Message { payload, id, ..self.message.clone() };
        self.unsent.extend(encode_publish(&message, Version::V311));
        self.published += 1;
        self.write()
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.unsent.len() {
            match self.stream.write(&self.unsent[at..]) {
                Ok(taken) => at += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..at);
        Ok(())
    }

    /// Reads acknowledgements.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::Error::other("the publisher's connection was closed")),
            Ok(taken) => self.partial.extend_from_slice(&chunk[..taken]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut at = 0;
        while let Some((packet, used)) = Packet::decode(&self.partial[at..], Version::V311) {
            at += used;
            self.acknowledged += u64::from(matches!(packet, Packet::Other { head: 0x40, .. }));
        }
        self.partial.drain(..at);
        Ok(())
    }
}
