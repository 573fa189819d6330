//! The client itself.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::packet::{Login, Message, Packet, Version, encode_publish, packet, string};
use crate::network;
use crate::wait::PATIENCE;

/// See the module above.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    version: Version,
    login: Vec<u8>,
    /// Bytes that are no whole packet yet.
    partial: Vec<u8>,
    /// Packets nobody has asked for yet.
    waiting: VecDeque<Packet>,
    next_id: u16,
    timeout: Duration,
}

impl Client {
    /// Connects and logs in. Says whether the broker kept a session.
    ///
    /// # Panics
    /// If the broker does not accept.
    #[track_caller]
    pub fn connect(port: u16, login: &Login) -> (Client, bool) {
        let mut client = Client::begin(port, login).expect("a broker listens");
        let is_present = client.login().expect("the broker accepts the client");
        (client, is_present)
    }

    /// The same at an address that is not this machine's.
    ///
    /// # Panics
    /// If the broker does not accept.
    #[track_caller]
    pub fn connect_to(address: SocketAddr, login: &Login) -> (Client, bool) {
        let stream = TcpStream::connect(address).expect("a broker listens");
        let mut client = Client::over(stream, login).expect("a socket that was made");
        let is_present = client.login().expect("the broker accepts the client");
        (client, is_present)
    }

    /// A clean client of MQTT 3.1.1.
    ///
    /// # Panics
    /// If the broker does not accept.
    #[must_use]
    #[track_caller]
    pub fn new(port: u16, id: &str) -> Client {
        Client::connect(port, &Login::new(id)).0
    }

    /// Connects, and writes nothing.
    ///
    /// # Errors
    /// As TCP.
    pub fn begin(port: u16, login: &Login) -> io::Result<Client> {
        Client::over(TcpStream::connect((network::host(), port))?, login)
    }

    /// The same over a connection somebody has made.
    ///
    /// # Errors
    /// As TCP.
    pub fn over(stream: TcpStream, login: &Login) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            version: login.version,
            login: login.encode(),
            partial: Vec::new(),
            waiting: VecDeque::new(),
            next_id: 0,
            timeout: PATIENCE,
        })
    }

    /// Writes CONNECT and reads CONNACK. Says whether the broker kept a session.
    ///
    /// # Errors
    /// If the broker refuses, or says nothing.
    pub fn login(&mut self) -> io::Result<bool> {
        let login = std::mem::take(&mut self.login);
        self.write(&login)?;
        let body = self.await_packet(2)?;
        match body[..] {
            [flags, 0, ..] => Ok(flags & 1 != 0),
            [_, code, ..] => Err(io::Error::other(format!("CONNACK says {code}"))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Gives the socket away. Nothing may be waiting.
    ///
    /// # Panics
    /// If something has arrived already.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        assert!(self.partial.is_empty() && self.waiting.is_empty(), "something arrived already");
        self.stream
    }

    /// How long an answer may take.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// As TCP.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(PATIENCE))?;
        (&self.stream).write_all(bytes)
    }

    /// Subscribes. Returns what the broker granted.
    ///
    /// # Panics
    /// If it does not answer.
    #[track_caller]
    pub fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        self.subscribe_with(filter, qos, &[])
    }

    /// Subscribes with properties and, in MQTT 5, subscription options in the upper bits of `options`.
    ///
    /// # Panics
    /// If the broker does not answer.
    #[track_caller]
    pub fn subscribe_with(&mut self, filter: &str, options: u8, properties: &[u8]) -> u8 {
        let answer = self.request_subscription(filter, options, properties);
        answer.expect("the broker answers SUBSCRIBE")
    }

    /// Subscribes. Returns what the broker granted.
    ///
    /// # Errors
    /// If the broker does not answer, or hangs up.
    pub fn try_subscribe(&mut self, filter: &str, qos: u8) -> io::Result<u8> {
        self.request_subscription(filter, qos, &[])
    }

    fn request_subscription(
        &mut self,
        filter: &str,
        options: u8,
        properties: &[u8],
    ) -> io::Result<u8> {
        let mut body = self.take_id().to_be_bytes().to_vec();
        if self.version == Version::V5 {
            body.push(u8::try_from(properties.len()).expect("tests use few"));
            body.extend(properties);
        }
        body.extend(string(filter));
        body.push(options);
        self.write(&packet(0x82, &body))?;
        let answer = self.await_packet(9)?;
        answer.last().copied().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Publishes, and completes the handshake of its QoS.
    ///
    /// # Panics
    /// If the broker does not do its part.
    #[track_caller]
    pub fn publish(&mut self, message: &Message) {
        self.try_publish(message).expect("the broker takes PUBLISH and answers it");
    }

    /// Publishes, and completes the handshake of its QoS.
    ///
    /// # Errors
    /// If the broker does not do its part, or hangs up.
    pub fn try_publish(&mut self, message: &Message) -> io::Result<()> {
        let id = (message.qos > 0).then(|| self.take_id());
        self.write(&encode_publish(&Message { id, ..message.clone() }, self.version))?;
        match message.qos {
            0 => {}
            1 => {
                self.await_packet(4)?;
            }
            _ => {
                let id = self.await_packet(5)?;
                let id = id.get(..2).ok_or(io::ErrorKind::InvalidData)?;
                self.write(&packet(0x62, id))?;
                self.await_packet(7)?;
            }
        }
        Ok(())
    }

    /// The next message, acknowledged as its QoS asks.
    ///
    /// # Panics
    /// If none comes.
    #[must_use]
    #[track_caller]
    pub fn message(&mut self) -> Message {
        self.try_message().expect("a message comes")
    }

    /// The next message, acknowledged as its QoS asks.
    ///
    /// # Errors
    /// If none comes in time, or the broker hangs up.
    pub fn try_message(&mut self) -> io::Result<Message> {
        let message = loop {
            if let Packet::Publish(message) = self.next_packet()? {
                break message;
            }
        };
        if let Some(id) = message.id {
            let id = id.to_be_bytes();
            match message.qos {
                1 => self.write(&packet(0x40, &id))?,
                _ => {
                    self.write(&packet(0x50, &id))?;
                    self.await_packet(6)?;
                    self.write(&packet(0x70, &id))?;
                }
            }
        }
        Ok(message)
    }

    /// Goes to the broker and back: what it wrote to this client before has arrived then.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ping(&mut self) -> io::Result<()> {
        self.write(&[0xc0, 0])?;
        self.await_packet(13).map(drop)
    }

    /// Messages that have arrived by the time the broker answered a PINGREQ.
    ///
    /// # Panics
    /// If it does not answer.
    #[track_caller]
    pub fn messages_so_far(&mut self) -> Vec<Message> {
        self.ping().expect("the broker answers PINGREQ");
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .filter_map(|packet| match packet {
                Packet::Publish(message) => Some(message),
                Packet::Other { .. } => None,
            })
            .collect()
    }

    /// Says goodbye.
    pub fn disconnect(mut self) {
        // A broker that is gone already needs no goodbye.
        let _ = self.write(&[0xe0, 0]);
    }

    /// Vanishes: the broker publishes the will.
    pub fn vanish(self) {
        drop(self.stream);
    }

    /// The next packet, whatever it is.
    ///
    /// # Errors
    /// `UnexpectedEof` when the broker closed the connection, `TimedOut`, or as TCP.
    pub fn next_packet(&mut self) -> io::Result<Packet> {
        if let Some(packet) = self.waiting.pop_front() {
            return Ok(packet);
        }
        self.receive()
    }

    /// Body of the next packet of this type; others wait.
    fn await_packet(&mut self, kind: u8) -> io::Result<Vec<u8>> {
        loop {
            match self.receive()? {
                Packet::Other { head, body } if head >> 4 == kind => return Ok(body),
                packet => self.waiting.push_back(packet),
            }
        }
    }

    fn receive(&mut self) -> io::Result<Packet> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some((packet, used)) = Packet::decode(&self.partial, self.version) {
                self.partial.drain(..used);
                return Ok(packet);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 64 * 1024];
            match (&self.stream).read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(taken) => self.partial.extend(&chunk[..taken]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take_id(&mut self) -> u16 {
        // Zero is no identifier.
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.next_id
    }
}
