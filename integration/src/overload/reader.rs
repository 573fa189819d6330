//! One subscriber of the flood, quick or slow.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::outcome::Share;
use super::publisher::Stamp;
use crate::mqtt::{Client, Login, Packet, Version, packet};
use crate::network;

/// What a slow reader's kernel takes before it reads, in bytes; the kernel makes a little more of it.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024;
/// Maximum segment of a slow reader, by which the other side's kernel sizes what it holds for it.
const SEGMENT_BYTES: u32 = 536;

/// See the module.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) stream: TcpStream,
    pub(super) is_slow: bool,
    chunk: Vec<u8>,
    partial: Vec<u8>,
    /// Acknowledgements that could not be written yet.
    unsent: Vec<u8>,
    pub(super) share: Share,
    /// The number of the last message.
    pub(super) last: Option<u64>,
}

impl Reader {
    /// Connects and subscribes.
    ///
    /// # Panics
    /// If the broker refuses.
    #[track_caller]
    pub(super) fn subscribe(port: u16, id: &str, is_slow: bool, topic: &str, qos: u8) -> Reader {
        let stream = connect(port, is_slow).expect("a broker listens");
        let mut client = Client::over(stream, &Login::new(id)).expect("our own socket");
        client.login().expect("the broker accepts the client");
        assert_eq!(client.subscribe(topic, qos), qos, "granted");
        // Behind it the SUBSCRIBE is settled.
        client.ping().expect("the broker answers PINGREQ");
        let stream = client.into_stream();
        stream.set_nonblocking(true).expect("our own socket");
        Reader {
            stream,
            is_slow,
            chunk: vec![0; 256 * 1024],
            partial: Vec::new(),
            unsent: Vec::new(),
            share: Share::default(),
            last: None,
        }
    }

    /// Reads at most so many bytes and acknowledges what came.
    ///
    /// # Errors
    /// If the connection is lost, or a message came twice, out of order, or not as it was sent.
    pub(super) fn read(&mut self, bytes_max: usize) -> io::Result<()> {
        let bytes_max = bytes_max.min(self.chunk.len());
        match self.stream.read(&mut self.chunk[..bytes_max]) {
            Ok(0) => return Err(io::Error::other("the connection was closed")),
            Ok(taken) => self.partial.extend_from_slice(&self.chunk[..taken]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        let mut at = 0;
        while let Some((packet, used)) = Packet::decode(&self.partial[at..], Version::V311) {
            at += used;
            if let Packet::Publish(message) = packet {
                self.unsent.extend(message.id.iter().flat_map(|id| puback(*id)));
                self.note(&message.payload, now)?;
            }
        }
        self.partial.drain(..at);
        self.acknowledge()
    }

    fn note(&mut self, payload: &[u8], now: Instant) -> io::Result<()> {
        let broken = |what: &str| Err(io::Error::other(format!("message {:?}: {what}", self.last)));
        let Some(stamp) = Stamp::read(payload) else {
            return broken("behind it came a broken one");
        };
        if self.last.is_some_and(|last| stamp.number <= last) {
            return broken("behind it came an older one, or itself");
        }
        if self.last.map_or(0, |last| last + 1) == stamp.number
            && self.share.whole == self.share.received
        {
            self.share.whole += 1;
        }
        self.last = Some(stamp.number);
        self.share.received += 1;
        let delay = now.saturating_duration_since(stamp.sent());
        self.share.delays.push(delay);
        Ok(())
    }

    fn acknowledge(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(taken) => drop(self.unsent.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn puback(id: u16) -> Vec<u8> {
    packet(0x40, &id.to_be_bytes())
}

fn connect(port: u16, is_slow: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if is_slow {
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.set_tcp_mss(SEGMENT_BYTES)?;
    }
    let address = SocketAddr::from((network::host(), port));
    socket.connect_timeout(&address.into(), Duration::from_secs(5))?;
    Ok(socket.into())
}
