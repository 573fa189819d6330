//! All clients of all targets: brought up, fed, kept alive and taken down.
//!
//! ```text
//! Transport ──bytes──► Decoder of that client ──Packet──► the measurement (fanout, echo)
//!           ◄── PUBACK for every QoS 1 PUBLISH ──┘
//! ```
//!
//! A fleet is the clients of one target. Every wait has a deadline; a client that loses its connection ends the run.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::mqtt::{self, Decoder, Greeting, Packet};
use super::rounds::Stop;
use super::transport::{Connection, Event, Transport, What, now_ns};

/// Connections that may be between SYN and SUBACK at once: below the usual listen backlog of 100.
const HANDSHAKES_MAX: usize = 64;
/// How long a fleet may take to come up, besides a millisecond for each 10 clients.
const BRING_UP: Duration = Duration::from_secs(20);
/// How long closing may take; what is left then is dropped.
const TEAR_DOWN: Duration = Duration::from_secs(3);
/// How long PINGRESPs may take.
const PING: Duration = Duration::from_secs(10);

/// A packet that arrived at a client.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    /// Of which fleet.
    pub(crate) fleet: usize,
    /// Which client of it.
    pub(crate) client: usize,
    /// When.
    pub(crate) at_ns: u64,
    /// What.
    pub(crate) packet: Packet<'a>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    AwaitingConnack,
    AwaitingSuback,
    Ready,
    Closing,
    Closed,
}

#[derive(Debug)]
struct Client {
    connection: Connection,
    state: State,
    decoder: Decoder,
    /// What it subscribes to.
    filter: Option<String>,
}

#[derive(Debug)]
struct Fleet {
    name: String,
    clients: Vec<Client>,
    pinged_ns: u64,
}

/// Everything that is connected.
pub(crate) struct Stage {
    transport: Box<dyn Transport>,
    fleets: Vec<Fleet>,
    /// Fleet and client of each connection; `None` once its fleet was taken down.
    owners: Vec<Option<(usize, usize)>>,
    qos: u8,
    greeting: Greeting,
    stop: Stop,
    /// QoS 1 deliveries to acknowledge.
    replies: Vec<(Connection, u16)>,
    pongs: usize,
}

impl Stage {
    /// Nobody connected yet. Subscriptions ask for `qos`.
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        qos: u8,
        greeting: Greeting,
        stop: Stop,
    ) -> Stage {
        Stage {
            transport,
            fleets: Vec::new(),
            owners: Vec::new(),
            qos,
            greeting,
            stop,
            replies: Vec::new(),
            pongs: 0,
        }
    }

    /// The transport, for its settings.
    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Connects and subscribes one client for each entry of `filters`; returns the fleet's number.
    pub(crate) fn bring_up(
        &mut self,
        name: &str,
        address: SocketAddr,
        filters: Vec<Option<String>>,
    ) -> Result<usize> {
        let fleet = self.fleets.len();
        let (total, mut opened) = (filters.len(), 0);
        let mut filters = filters.into_iter();
        self.fleets.push(Fleet { name: name.to_owned(), clients: vec![], pinged_ns: now_ns() });
        let deadline = now_ns() + nanoseconds(BRING_UP) + total as u64 * 100_000;
        loop {
            let ready = self.count(fleet, State::Ready);
            if ready == total {
                return Ok(fleet);
            }
            while opened < total && opened - ready < HANDSHAKES_MAX {
                let filter = filters.next().context("one filter for each client")?;
                self.open(fleet, address, filter)?;
                opened += 1;
            }
            if now_ns() > deadline {
                bail!("{name} ({address}): only {ready} of {total} clients are connected in time");
            }
            self.pump(Duration::from_millis(5), &mut |_| Ok(()))?;
        }
    }

    fn open(&mut self, fleet: usize, address: SocketAddr, filter: Option<String>) -> Result<()> {
        let connection = self.transport.open(address)?;
        assert_eq!(connection.index(), self.owners.len(), "connections are numbered from 0");
        let clients = &mut self.fleets[fleet].clients;
        self.owners.push(Some((fleet, clients.len())));
        let (state, decoder) = (State::Connecting, Decoder::default());
        clients.push(Client { connection, state, decoder, filter });
        Ok(())
    }

    fn count(&self, fleet: usize, state: State) -> usize {
        self.fleets[fleet].clients.iter().filter(|client| client.state == state).count()
    }

    /// Sends `bytes` from a client; `flush` or `pump` puts them on the way.
    pub(crate) fn send(&mut self, fleet: usize, client: usize, bytes: &[u8]) -> Result<()> {
        self.transport.send(self.fleets[fleet].clients[client].connection, bytes)
    }

    /// Puts everything sent on the way.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.transport.flush()
    }

    /// Waits at most `wait` for arrivals and hands them to `sink`.
    pub(crate) fn pump(
        &mut self,
        wait: Duration,
        sink: &mut dyn FnMut(Arrival<'_>) -> Result<()>,
    ) -> Result<()> {
        self.stop.check()?;
        let mut result = Ok(());
        let mut talk = Vec::new();
        let (fleets, owners) = (&mut self.fleets, &self.owners);
        let (replies, pongs) = (&mut self.replies, &mut self.pongs);
        let (qos, greeting) = (self.qos, &self.greeting);
        self.transport.poll(wait, &mut |event| {
            let Some((fleet, client)) = owners[event.connection.index()] else { return };
            if result.is_err() {
                return;
            }
            let mut turn = Turn { fleet, client, qos, greeting, replies, pongs, talk: &mut talk };
            let handled = turn.handle(&mut fleets[fleet].clients[client], event, sink);
            result = handled.with_context(|| format!("{}, client {client}", fleets[fleet].name));
        })?;
        result?;
        for (connection, bytes) in talk {
            self.transport.send(connection, &bytes)?;
        }
        for (connection, id) in self.replies.drain(..) {
            self.transport.send(connection, &mqtt::puback(id))?;
        }
        self.transport.flush()
    }

    /// Sends the PINGREQs that are due, so that no server takes an idle fleet for dead, and waits for the answers.
    pub(crate) fn keep_alive(&mut self) -> Result<()> {
        let now = now_ns();
        let every = u64::from(self.greeting.keepalive_s) * 500_000_000;
        self.pongs = 0;
        let mut sent = 0;
        for fleet in &mut self.fleets {
            if every == 0 || now < fleet.pinged_ns + every {
                continue;
            }
            fleet.pinged_ns = now;
            for client in fleet.clients.iter().filter(|client| client.state == State::Ready) {
                self.transport.send(client.connection, &mqtt::PINGREQ)?;
                sent += 1;
            }
        }
        while self.pongs < sent {
            if now_ns() > now + nanoseconds(PING) {
                bail!("{} of {sent} PINGREQs were not answered", sent - self.pongs);
            }
            self.pump(Duration::from_millis(5), &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Disconnects everybody.
    pub(crate) fn tear_down(&mut self) -> Result<()> {
        for fleet in &mut self.fleets {
            for client in &mut fleet.clients {
                if client.state != State::Closed {
                    client.state = State::Closing;
                    self.transport.send(client.connection, &mqtt::DISCONNECT)?;
                    self.transport.close(client.connection)?;
                }
            }
        }
        let deadline = now_ns() + nanoseconds(TEAR_DOWN);
        let open = |stage: &Stage| {
            (0..stage.fleets.len()).map(|f| stage.count(f, State::Closing)).sum::<usize>()
        };
        while open(self) > 0 && now_ns() < deadline {
            self.pump(Duration::from_millis(5), &mut |_| Ok(()))?;
        }
        self.fleets.clear();
        self.owners.fill(None);
        Ok(())
    }
}

/// One event being handled.
struct Turn<'a> {
    fleet: usize,
    client: usize,
    qos: u8,
    greeting: &'a Greeting,
    replies: &'a mut Vec<(Connection, u16)>,
    pongs: &'a mut usize,
    talk: &'a mut Vec<(Connection, Vec<u8>)>,
}

impl Turn<'_> {
    fn handle(
        &mut self,
        client: &mut Client,
        event: Event<'_>,
        sink: &mut dyn FnMut(Arrival<'_>) -> Result<()>,
    ) -> Result<()> {
        match event.what {
            What::Connected => {
                client.state = State::AwaitingConnack;
                let id = format!("bench-{}-{}", std::process::id(), client.connection.0);
                self.talk.push((client.connection, mqtt::connect(&id, self.greeting)));
                Ok(())
            }
            What::Closed(_) if client.state == State::Closing => {
                client.state = State::Closed;
                Ok(())
            }
            What::Closed(reason) => Err(anyhow!("the connection ended: {reason}")),
            What::Data(_) if client.state == State::Closing => Ok(()),
            What::Data(bytes) => {
                let mut result = Ok(());
                let mut decoder = std::mem::take(&mut client.decoder);
                decoder.feed(bytes, &mut |packet| {
                    if result.is_ok() {
                        result = self.handle_packet(client, event.at_ns, packet, sink);
                    }
                })?;
                client.decoder = decoder;
                result
            }
        }
    }

    fn handle_packet(
        &mut self,
        client: &mut Client,
        at_ns: u64,
        packet: Packet<'_>,
        sink: &mut dyn FnMut(Arrival<'_>) -> Result<()>,
    ) -> Result<()> {
        match (client.state, packet) {
            (State::AwaitingConnack, Packet::Connack(0)) => {
                client.state = State::Ready;
                if let Some(filter) = &client.filter {
                    client.state = State::AwaitingSuback;
                    self.talk.push((client.connection, mqtt::subscribe(filter, self.qos)));
                }
                Ok(())
            }
            (State::AwaitingConnack, Packet::Connack(code)) => {
                Err(anyhow!("CONNECT was refused with return code {code}"))
            }
            (State::AwaitingSuback, Packet::Suback(code)) => {
                if code != self.qos {
                    bail!("SUBSCRIBE at QoS {} was answered with {code:#04x}", self.qos);
                }
                client.state = State::Ready;
                Ok(())
            }
            (State::Ready, Packet::Pingresp) => {
                *self.pongs += 1;
                Ok(())
            }
            (State::Ready, packet) => {
                if let Packet::Publish { qos: 1, id, .. } = packet {
                    self.replies.push((client.connection, id));
                }
                sink(Arrival { fleet: self.fleet, client: self.client, at_ns, packet })
            }
            (state, packet) => Err(anyhow!("{packet:?} came while {state:?}")),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
