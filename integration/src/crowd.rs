//! Many subscribers in one loop, each checked: every message once, in order.
//!
//! A message is its number, eight bytes, and padding. The loop is the test's own thread: what it costs is not what is
//! measured, and it must stay far cheaper than a broker.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::mqtt::{Client, Login, Packet, Version};

/// Events taken at once.
const EVENTS: usize = 256;

#[derive(Debug)]
struct Member {
    stream: TcpStream,
    partial: Vec<u8>,
    /// The number of the next message.
    seen: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Crowd {
    members: Vec<Member>,
    epoll: OwnedFd,
    /// Messages all members have got.
    total: u64,
    /// Members may miss messages.
    is_lossy: bool,
}

impl Crowd {
    /// `count` clients subscribed to `filter`.
    ///
    /// # Panics
    /// If the broker refuses one, or this process may not have as many descriptors.
    #[must_use]
    #[track_caller]
    pub fn subscribe(port: u16, count: usize, filter: &str) -> Crowd {
        raise_descriptors(count + 200);
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll set");
        let mut members = Vec::with_capacity(count);
        for index in 0..count {
            let (mut client, _) = Client::connect(port, &Login::new(&format!("crowd-{index}")));
            assert_eq!(client.subscribe(filter, 0), 0, "granted");
            let stream = client.into_stream();
            stream.set_nonblocking(true).expect("our own socket");
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, EventFlags::IN).expect("our own epoll set");
            members.push(Member { stream, partial: Vec::new(), seen: 0 });
        }
        Crowd { members, epoll, total: 0, is_lossy: false }
    }

    /// Allows members to miss messages, as those of an overloaded broker do at QoS 0. Order is still checked.
    #[must_use]
    pub fn lossy(self) -> Crowd {
        Crowd { is_lossy: true, ..self }
    }

    /// Reads what is there, waiting at most `timeout` for the first byte.
    ///
    /// # Errors
    /// If a member lost, repeated or reordered a message, or its connection.
    pub fn pump(&mut self, timeout: Duration) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let timeout = timeout.try_into().expect("tests wait seconds");
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let index = usize::try_from(event.data.u64()).expect("an index of ours");
            self.total += self.members[index].read(index, self.is_lossy)?;
        }
        Ok(())
    }

    /// Messages all members together have got.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Reads until nothing has come for `quiet`.
    ///
    /// # Errors
    /// As [`Crowd::pump`].
    pub fn drain(&mut self, quiet: Duration) -> io::Result<()> {
        loop {
            let before = self.total;
            self.pump(quiet)?;
            if self.total == before {
                return Ok(());
            }
        }
    }

    /// Reads until every member has got `messages`.
    ///
    /// # Errors
    /// As [`Crowd::pump`], and `TimedOut` after `patience`.
    pub fn await_all(&mut self, messages: u64, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let wanted = messages * self.members.len() as u64;
        while self.total < wanted {
            if Instant::now() >= deadline {
                let text = format!("{} of {wanted} messages came in time", self.total);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.pump(Duration::from_millis(100))?;
        }
        Ok(())
    }
}

impl Member {
    /// Returns how many messages came.
    fn read(&mut self, index: usize, is_lossy: bool) -> io::Result<u64> {
        let mut came = 0;
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => {
                return Err(io::Error::other(format!("subscriber {index} lost its connection")));
            }
            Ok(taken) => self.partial.extend(&chunk[..taken]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        }
        let mut at = 0;
        while let Some((packet, used)) = Packet::decode(&self.partial[at..], Version::V311) {
            at += used;
            if let Packet::Publish(message) = packet {
                let number = number_of(&message.payload);
                let is_due = match is_lossy {
                    true => number >= Some(self.seen),
                    false => number == Some(self.seen),
                };
                if !is_due {
                    let text =
                        format!("subscriber {index}: {number:?} came instead of {}", self.seen);
                    return Err(io::Error::other(text));
                }
                self.seen = number.map_or(self.seen, |number| number + 1);
                came += 1;
            }
        }
        self.partial.drain(..at);
        Ok(came)
    }
}

/// The payload of message `number`, `bytes` long.
#[must_use]
pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes.max(8), b'.');
    payload
}

/// The number in a payload.
#[must_use]
pub fn number_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Sees to it that this process may have `count` descriptors.
fn raise_descriptors(count: usize) {
    let now = getrlimit(Resource::Nofile);
    let wanted = count as u64;
    if now.current.is_some_and(|current| current < wanted) {
        let current = Some(now.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum: now.maximum })
            .expect("below the hard limit");
    }
}
