//! The stack without a network: its clients are its own.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dpu_server::stack::memory::{ClientId, Ended, Memory};

use crate::world::{Heard, World};

/// What a connection takes for a client that does not read.
const WINDOW_BYTES: usize = 64 * 1024;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)), 7);

/// See the module.
pub(crate) struct InMemory {
    stack: Memory,
    clients: Vec<Option<ClientId>>,
    /// Connections of the card's own that were taken.
    served: Option<ClientId>,
}

/// A stack without a network.
pub(crate) fn memory() -> Option<InMemory> {
    Some(InMemory { stack: Memory::new(WINDOW_BYTES), clients: Vec::new(), served: None })
}

impl InMemory {
    fn id(&self, client: usize) -> ClientId {
        self.clients[client].expect("it is connected")
    }
}

impl World for InMemory {
    type Stack = Memory;

    fn stack(&mut self) -> &mut Memory {
        &mut self.stack
    }

    fn card(&self) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, 2).into()
    }

    fn host(&self) -> IpAddr {
        SERVER.ip()
    }

    fn dial(&mut self, to: SocketAddr) -> usize {
        self.clients.push(self.stack.connect(to));
        self.clients.len() - 1
    }

    fn dialled(&mut self, client: usize) -> Option<Result<SocketAddr, ErrorKind>> {
        let id = self.clients[client];
        Some(match id.and_then(|id| self.stack.ends(id)) {
            Some(ends) => Ok(ends.peer),
            None => Err(ErrorKind::ConnectionRefused),
        })
    }

    fn say(&mut self, client: usize, bytes: &[u8]) -> usize {
        self.stack.client_send(self.id(client), bytes);
        bytes.len()
    }

    fn is_refused(&mut self, client: usize, _: &[u8]) -> bool {
        self.stack.ended(self.id(client)) != Ended::Open
    }

    fn hear(&mut self, client: usize, bytes: &mut Vec<u8>) -> Heard {
        let id = self.id(client);
        bytes.extend(self.stack.client_recv(id));
        match self.stack.ended(id) {
            Ended::Open => Heard::Open,
            Ended::Fin => Heard::Fin,
            Ended::Reset => Heard::Reset,
        }
    }

    fn fin(&mut self, client: usize) {
        self.stack.client_fin(self.id(client));
    }

    fn reset(&mut self, client: usize) {
        self.stack.client_reset(self.id(client));
    }

    fn leave(&mut self, client: usize) {
        self.fin(client);
    }

    fn serve(&mut self) -> SocketAddr {
        self.stack.serve(SERVER);
        SERVER
    }

    fn serve6(&mut self) -> SocketAddr {
        unreachable!("no case of the memory's asks for it")
    }

    fn serve_deaf(&mut self) -> SocketAddr {
        unreachable!("no case of the memory's asks for it")
    }

    fn served(&mut self) -> Option<usize> {
        let id = self.stack.last_client().filter(|id| Some(*id) != self.served)?;
        self.served = Some(id);
        self.clients.push(Some(id));
        Some(self.clients.len() - 1)
    }
}
