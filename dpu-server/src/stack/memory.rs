//! A stack without a network: both ends of every connection in one process, for tests and simulation.
//!
//! ```text
//! Memory::connect ──► [ backlog of a listener ] ──accept──► [ bytes to the card │ bytes to the client, at most a window ]
//! ```
//!
//! The methods of [`Memory`] play the clients, those of [`Stack`] serve the card. Deterministic: no I/O, no clock, no
//! threads; `wait` returns at once whatever its time. Options are kept and read back, and mean nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use mqttshim_schema::{How, SocketOption};
use rustix::io::Errno;

use super::{AcceptError, Batch, End, Ends, Event, Key, Received, Sends, Sent, Stack, Watch};

/// First port given out for port 0.
const EPHEMERAL_PORT_FIRST: u16 = 49152;

/// Names a client's connection.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ClientId(pub u32);

/// How the card ended a connection, as its client sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Not at all.
    Open,
    /// By FIN, after the bytes received so far.
    Fin,
    /// By RST.
    Reset,
}

#[derive(Debug)]
struct Pipe {
    ends: Ends,
    to_card: VecDeque<u8>,
    to_client: VecDeque<u8>,
    client_fin: bool,
    client_reset: bool,
    card: Ended,
}

#[derive(Debug)]
struct Listener {
    backlog: VecDeque<ClientId>,
}

#[derive(Debug)]
enum Socket {
    Bound(SocketAddr),
    Listening(SocketAddr, Listener),
    Connecting(Result<ClientId, Errno>),
    Stream(ClientId),
}

type Options = BTreeMap<(i32, i32), Vec<u8>>;

/// See the module.
#[derive(Debug)]
pub struct Memory {
    window_bytes: usize,
    sockets: BTreeMap<Key, (Socket, Options)>,
    pipes: BTreeMap<ClientId, Pipe>,
    /// Where a program's own connects are answered.
    servers: Vec<SocketAddr>,
    events: Vec<Event>,
    clients: u32,
    port_next: u16,
    /// Sockets that may be open at once; at the bound, accept is `EMFILE`.
    sockets_max: usize,
    sends: Sends,
    /// Who refused a delivery and was sent nothing since.
    refusing: BTreeSet<Key>,
}

impl Memory {
    /// A stack whose connections take `window_bytes` towards a client that does not read.
    #[must_use]
    pub fn new(window_bytes: usize) -> Memory {
        Memory {
            window_bytes,
            sockets: BTreeMap::new(),
            pipes: BTreeMap::new(),
            servers: Vec::new(),
            events: Vec::new(),
            clients: 0,
            port_next: EPHEMERAL_PORT_FIRST,
            sockets_max: usize::MAX,
            sends: Sends::default(),
            refusing: BTreeSet::new(),
        }
    }

    /// Bounds the open sockets of the card.
    pub fn set_sockets_max(&mut self, sockets_max: usize) {
        self.sockets_max = sockets_max;
    }

    /// Sockets the card holds.
    #[must_use]
    pub fn sockets_open(&self) -> usize {
        self.sockets.len()
    }

    /// Answers connects of the card's programs to `address`.
    pub fn serve(&mut self, address: SocketAddr) {
        self.servers.push(address);
    }

    /// A client connects to a listening socket; `None` if nobody listens there.
    pub fn connect(&mut self, to: SocketAddr) -> Option<ClientId> {
        let client = ClientId(self.clients);
        let (key, listener) = self.sockets.iter_mut().find_map(|(key, (socket, _))| {
            let Socket::Listening(address, listener) = socket else { return None };
            (address.port() == to.port()).then_some((*key, listener))
        })?;
        listener.backlog.push_back(client);
        self.events.push(Event::Socket { key, readable: true, writable: false, ended: false });
        let peer = SocketAddr::from(([192, 0, 2, 1], 10_000 + (self.clients % 50_000) as u16));
        self.add_pipe(Ends { local: to, peer });
        Some(client)
    }

    fn add_pipe(&mut self, ends: Ends) -> ClientId {
        let client = ClientId(self.clients);
        self.clients += 1;
        let pipe = Pipe {
            ends,
            to_card: VecDeque::new(),
            to_client: VecDeque::new(),
            client_fin: false,
            client_reset: false,
            card: Ended::Open,
        };
        self.pipes.insert(client, pipe);
        client
    }

    /// The other end of the connection that the card's program made last.
    #[must_use]
    pub fn last_client(&self) -> Option<ClientId> {
        self.pipes.keys().next_back().copied()
    }

    /// Both ends of a client's connection.
    #[must_use]
    pub fn ends(&self, client: ClientId) -> Option<Ends> {
        self.pipes.get(&client).map(|pipe| pipe.ends)
    }

    /// A client sends.
    pub fn client_send(&mut self, client: ClientId, bytes: &[u8]) {
        self.pipe(client).to_card.extend(bytes);
        self.touch(client, true);
    }

    /// A client sends its FIN.
    pub fn client_fin(&mut self, client: ClientId) {
        self.pipe(client).client_fin = true;
        self.touch(client, true);
    }

    /// A client resets its connection.
    pub fn client_reset(&mut self, client: ClientId) {
        let pipe = self.pipe(client);
        pipe.client_reset = true;
        pipe.to_client.clear();
        self.touch(client, true);
    }

    /// A client takes all it received.
    pub fn client_recv(&mut self, client: ClientId) -> Vec<u8> {
        let bytes = self.pipe(client).to_client.drain(..).collect();
        self.touch(client, false);
        bytes
    }

    /// How the card ended this connection.
    #[must_use]
    pub fn ended(&self, client: ClientId) -> Ended {
        self.pipes.get(&client).map_or(Ended::Reset, |pipe| pipe.card)
    }

    /// Bytes of a client that the card has not read.
    #[must_use]
    pub fn unread(&self, client: ClientId) -> usize {
        self.pipes.get(&client).map_or(0, |pipe| pipe.to_card.len())
    }

    fn pipe(&mut self, client: ClientId) -> &mut Pipe {
        self.pipes.get_mut(&client).expect("a client this stack gave out")
    }

    /// Reports a change at the client to the card.
    fn touch(&mut self, client: ClientId, readable: bool) {
        let key = self.sockets.iter().find_map(|(key, (socket, _))| {
            matches!(socket, Socket::Stream(of) if *of == client).then_some(*key)
        });
        if let Some(key) = key {
            let pipe = self.pipe(client);
            let ended = pipe.client_fin || pipe.client_reset;
            self.events.push(Event::Socket { key, readable, writable: true, ended });
        }
    }

    fn stream(&mut self, key: Key) -> Option<&mut Pipe> {
        let Some((Socket::Stream(client), _)) = self.sockets.get(&key) else { return None };
        self.pipes.get_mut(client)
    }

    /// Bytes a connection takes now; none if it is gone.
    fn room(&mut self, key: Key) -> usize {
        let window_bytes = self.window_bytes;
        match self.stream(key) {
            Some(pipe) if !pipe.client_reset && pipe.card == Ended::Open => {
                window_bytes.saturating_sub(pipe.to_client.len())
            }
            _ => 0,
        }
    }

    fn send_part(&mut self, key: Key, part: &[std::io::IoSlice<'_>]) -> Sent {
        let window_bytes = self.window_bytes;
        let Some(pipe) = self.stream(key) else { return Sent::Gone(Errno::BADF) };
        if pipe.client_reset || pipe.card != Ended::Open {
            return Sent::Gone(Errno::PIPE);
        }
        let room = window_bytes.saturating_sub(pipe.to_client.len());
        let before = pipe.to_client.len();
        pipe.to_client.extend(part.iter().flat_map(|slice| slice.iter()).take(room));
        match pipe.to_client.len() - before {
            0 => Sent::Full,
            bytes => Sent::Bytes(bytes),
        }
    }
}

fn kept(options: &[SocketOption<'_>]) -> Options {
    options.iter().map(|option| ((option.level, option.name), option.value.to_vec())).collect()
}

impl Stack for Memory {
    fn bind(
        &mut self,
        key: Key,
        _uid: u32,
        mut address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        if address.port() == 0 {
            address.set_port(self.port_next);
            self.port_next += 1;
        }
        let taken = self.sockets.values().any(|(socket, _)| {
            let (Socket::Bound(other) | Socket::Listening(other, _)) = socket else { return false };
            other.port() == address.port()
        });
        if taken {
            return Err(Errno::ADDRINUSE);
        }
        self.sockets.insert(key, (Socket::Bound(address), kept(options)));
        Ok(address)
    }

    fn listen(
        &mut self,
        key: Key,
        _backlog: i32,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let (socket, kept_options) = self.sockets.get_mut(&key).ok_or(Errno::BADF)?;
        kept_options.extend(kept(options));
        match socket {
            Socket::Bound(address) => {
                let address = *address;
                *socket = Socket::Listening(address, Listener { backlog: VecDeque::new() });
                Ok(address)
            }
            Socket::Listening(address, _) => Ok(*address),
            _ => Err(Errno::INVAL),
        }
    }

    fn accept(&mut self, listener: Key, key: Key) -> Result<Ends, AcceptError> {
        let full = self.sockets.len() >= self.sockets_max;
        let queue = match self.sockets.get_mut(&listener) {
            Some((Socket::Listening(_, queue), _)) => queue,
            Some(_) => return Err(AcceptError::Failed(Errno::INVAL)),
            None => return Err(AcceptError::Failed(Errno::BADF)),
        };
        if queue.backlog.is_empty() {
            return Err(AcceptError::Empty);
        }
        if full {
            return Err(AcceptError::Exhausted(Errno::MFILE));
        }
        let client = queue.backlog.pop_front().ok_or(AcceptError::Empty)?;
        self.sockets.insert(key, (Socket::Stream(client), Options::new()));
        self.touch(client, true);
        Ok(self.pipe(client).ends)
    }

    fn connect(
        &mut self,
        key: Key,
        _uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let local = SocketAddr::from(([192, 0, 2, 2], self.port_next));
        let outcome = if self.servers.contains(&address) {
            Ok(self.add_pipe(Ends { local, peer: address }))
        } else {
            Err(Errno::CONNREFUSED)
        };
        self.sockets.insert(key, (Socket::Connecting(outcome), kept(options)));
        self.events.push(Event::Socket { key, readable: false, writable: true, ended: false });
        Ok(local)
    }

    fn connect_result(&mut self, key: Key) -> Option<Result<Ends, Errno>> {
        let (socket, _) = self.sockets.get_mut(&key)?;
        let Socket::Connecting(outcome) = *socket else { return None };
        Some(match outcome {
            Ok(client) => {
                *socket = Socket::Stream(client);
                self.touch(client, true);
                Ok(self.pipe(client).ends)
            }
            Err(error) => Err(error),
        })
    }

    fn option(
        &mut self,
        key: Key,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        let (_, options) = self.sockets.get(&key).ok_or(Errno::BADF)?;
        let kept = options.get(&(level, name)).ok_or(Errno::NOPROTOOPT)?;
        let bytes = kept.len().min(value.len());
        value[..bytes].copy_from_slice(&kept[..bytes]);
        Ok(bytes)
    }

    fn set_option(&mut self, key: Key, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let (_, options) = self.sockets.get_mut(&key).ok_or(Errno::BADF)?;
        options.insert((level, name), value.to_vec());
        Ok(())
    }

    fn recv(&mut self, key: Key, buffer: &mut [u8]) -> Received {
        let Some(pipe) = self.stream(key) else { return Received::Gone(Errno::BADF) };
        let bytes = pipe.to_card.len().min(buffer.len());
        if bytes > 0 {
            for (to, from) in buffer.iter_mut().zip(pipe.to_card.drain(..bytes)) {
                *to = from;
            }
            return Received::Bytes(bytes);
        }
        match pipe {
            Pipe { client_reset: true, .. } => Received::Gone(Errno::CONNRESET),
            Pipe { client_fin: true, .. } => Received::Fin,
            _ => Received::Empty,
        }
    }

    const SENDS_TOGETHER: usize = 16;

    fn send(&mut self, batch: &Batch<'_>, sent: &mut Vec<Sent>) {
        sent.clear();
        for (key, part) in batch.iter() {
            self.refusing.remove(&key);
            sent.push(self.send_part(key, part));
        }
        self.sends.plain += batch.len() as u64;
    }

    const DELIVERS: bool = true;

    fn deliver<'c>(
        &mut self,
        deliveries: impl Iterator<Item = (Key, u32, &'c [u8])> + Clone,
        refused: &mut Vec<u32>,
    ) {
        refused.clear();
        for (place, (key, _, bytes)) in deliveries.enumerate() {
            if self.room(key) >= bytes.len() && !self.refusing.contains(&key) {
                self.send_part(key, &[std::io::IoSlice::new(bytes)]);
                self.sends.plain += 1;
            } else {
                self.refusing.insert(key);
                refused.push(place as u32);
            }
        }
    }

    fn shutdown(&mut self, key: Key, how: How) -> Result<(), Errno> {
        if !self.sockets.contains_key(&key) {
            return Err(Errno::BADF);
        }
        let pipe = self.stream(key).ok_or(Errno::NOTCONN)?;
        if how != How::Read {
            pipe.card = Ended::Fin;
        }
        Ok(())
    }

    fn close(&mut self, key: Key, end: End) {
        let Some((socket, _)) = self.sockets.remove(&key) else { return };
        self.refusing.remove(&key);
        match socket {
            Socket::Stream(client) => {
                let pipe = self.pipe(client);
                // RFC 2525 §2.17: unread bytes at close mean RST.
                let reset = end == End::Reset || !pipe.to_card.is_empty();
                pipe.card = if reset { Ended::Reset } else { Ended::Fin };
            }
            Socket::Listening(_, listener) => {
                for client in listener.backlog {
                    self.pipe(client).card = Ended::Reset;
                }
            }
            Socket::Bound(_) | Socket::Connecting(_) => {}
        }
    }

    fn watch(&mut self, _: Watch, _: BorrowedFd<'_>, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn unwatch(&mut self, _: BorrowedFd<'_>) {}

    fn wait(&mut self, _timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        events.append(&mut self.events);
        Ok(())
    }

    fn sends(&self) -> Sends {
        self.sends
    }
}
