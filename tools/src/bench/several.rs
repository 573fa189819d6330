//! Transports side by side in one run: which one a connection takes follows from its target.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::transport::{Connection, Event, Transport};

/// See the module.
pub(crate) struct Several {
    parts: Vec<Part>,
    /// The part that reaches a target.
    by_target: HashMap<SocketAddr, usize>,
    /// The part of each connection, and its number there.
    places: Vec<(usize, Connection)>,
    /// The part that was spoken to last: whoever waits, waits there.
    active: usize,
}

struct Part {
    transport: Box<dyn Transport>,
    /// Our number of each of its connections.
    numbers: Vec<Connection>,
}

impl Several {
    /// Each transport with the targets that it reaches.
    pub(crate) fn new(parts: Vec<(Vec<SocketAddr>, Box<dyn Transport>)>) -> Several {
        let mut several =
            Several { parts: Vec::new(), by_target: HashMap::new(), places: Vec::new(), active: 0 };
        for (targets, transport) in parts {
            let at = several.parts.len();
            several.by_target.extend(targets.into_iter().map(|target| (target, at)));
            several.parts.push(Part { transport, numbers: Vec::new() });
        }
        several
    }

    fn part(&mut self, connection: Connection) -> (&mut dyn Transport, Connection) {
        let (at, number) = self.places[connection.index()];
        self.active = at;
        (&mut *self.parts[at].transport, number)
    }
}

impl Transport for Several {
    fn open(&mut self, target: SocketAddr) -> Result<Connection> {
        let at = *self.by_target.get(&target).context("every target has its transport")?;
        let number = u32::try_from(self.places.len()).context("too many connections")?;
        let part = &mut self.parts[at];
        let connection = part.transport.open(target)?;
        assert_eq!(connection.index(), part.numbers.len(), "connections are numbered from 0");
        part.numbers.push(Connection(number));
        self.places.push((at, connection));
        self.active = at;
        Ok(Connection(number))
    }

    fn send(&mut self, connection: Connection, bytes: &[u8]) -> Result<()> {
        let (transport, number) = self.part(connection);
        transport.send(number, bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.transport.flush())
    }

    fn poll(&mut self, wait: Duration, sink: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        for (at, part) in self.parts.iter_mut().enumerate() {
            let wait = if at == self.active { wait } else { Duration::ZERO };
            let numbers = &part.numbers;
            part.transport.poll(wait, &mut |event| {
                sink(Event { connection: numbers[event.connection.index()], ..event });
            })?;
        }
        Ok(())
    }

    fn close(&mut self, connection: Connection) -> Result<()> {
        let (transport, number) = self.part(connection);
        transport.close(number)
    }

    fn set_prompt(&mut self, prompt: bool) {
        for part in &mut self.parts {
            part.transport.set_prompt(prompt);
        }
    }

    fn describe(&mut self) -> String {
        let lines: Vec<_> = self.parts.iter_mut().map(|part| part.transport.describe()).collect();
        lines.join("\n")
    }
}
