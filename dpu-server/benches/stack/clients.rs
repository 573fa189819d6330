//! So many clients of one stack, played by numbers: their frames are made by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dpu_server::stack::smoltcp::Smoltcp;
use dpu_server::stack::{Event, Key, Sent, Stack};

use super::wire::{CARD, FRAME_BYTES, Memory};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 1883;
const LISTENER: Key = Key(0);
/// Clients that connect at once: fewer than a listener has half open.
const STEP: usize = 250;
/// Clients have the machines 10.1.0.7 and up, with so many ports each.
const FIRST: u8 = 7;
const PORTS: usize = 50_000;
const PORT_FIRST: u16 = 1024;
/// The first sequence number of a client.
const ISS: u32 = 1000;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Where one client stands.
#[derive(Clone, Copy)]
struct Client {
    /// SND.NXT.
    sequence: u32,
    /// RCV.NXT.
    acknowledged: u32,
}

/// The stack, and its clients.
pub(super) struct Bench {
    pub(super) stack: Smoltcp<Memory>,
    clients: Vec<Client>,
    events: Vec<Event>,
    pub(super) sent: Vec<Sent>,
}

impl Bench {
    /// A listener, and memory for all that the bench itself will need.
    pub(super) fn new(connections: usize) -> Bench {
        let own = "10.0.0.1/8".parse().expect("an address");
        let mut stack = Smoltcp::new(Memory::new(), vec![own], None).expect("a stack");
        stack.bind(LISTENER, 0, SocketAddr::from((OWN, PORT)), &[]).expect("a name");
        stack.listen(LISTENER, 4096, &[]).expect("a listener");
        let client = Client { sequence: ISS, acknowledged: 0 };
        let clients = vec![client; connections];
        stack.port_mut().incoming.frames = vec![[0; FRAME_BYTES]; connections];
        stack.port_mut().incoming.clear();
        let sent = vec![Sent::Full; connections];
        Bench { stack, clients, events: Vec::with_capacity(STEP), sent }
    }

    pub(super) fn connections(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + Clone + use<> {
        (0..self.clients.len()).map(super::key)
    }

    pub(super) fn frames_sent(&mut self) -> u64 {
        self.stack.port_mut().outgoing.count
    }

    /// Looks once for what happened.
    pub(super) fn wait(&mut self) {
        self.events.clear();
        self.stack.wait(Some(Duration::ZERO), &mut self.events).expect("a wait");
    }

    /// Takes in all frames that are there.
    pub(super) fn wait_for_all(&mut self) {
        while !self.stack.port_mut().incoming.is_empty() {
            self.wait();
        }
    }

    /// Every client's handshake, and its acceptance.
    pub(super) fn connect(&mut self) {
        for first in (0..self.clients.len()).step_by(STEP) {
            let step = first..self.clients.len().min(first + STEP);
            let frames = step.clone().map(|at| frame(at, self.clients[at], SYN)).collect();
            self.stack.port_mut().outgoing.heads = Some(Vec::new());
            self.play(frames);
            let heads = self.stack.port_mut().outgoing.heads.take().expect("set above");
            for head in heads {
                // On a slow machine an answer may have been sent again.
                assert_eq!(head[47], SYN | ACK, "not the answer to a SYN");
                let theirs = u32::from_be_bytes([head[38], head[39], head[40], head[41]]);
                let client = &mut self.clients[whose(&head)];
                *client = Client { sequence: ISS + 1, acknowledged: theirs.wrapping_add(1) };
            }
            let frames = step.clone().map(|at| frame(at, self.clients[at], ACK)).collect();
            self.play(frames);
            for at in step {
                self.stack.accept(LISTENER, super::key(at)).expect("a connection");
            }
        }
    }

    fn play(&mut self, frames: Vec<[u8; FRAME_BYTES]>) {
        let incoming = &mut self.stack.port_mut().incoming;
        incoming.clear();
        incoming.frames.extend(frames);
        self.wait_for_all();
    }

    /// Lets every client have received so many bytes; their frames are ready to be taken in.
    pub(super) fn prepare_acknowledgements(&mut self, bytes: usize) {
        let incoming = &mut self.stack.port_mut().incoming;
        incoming.clear();
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.acknowledged = client.acknowledged.wrapping_add(bytes as u32);
            incoming.frames.push(frame(at, *client, ACK));
        }
    }
}

/// Whom a frame of the stack is for.
fn whose(frame: &[u8; FRAME_BYTES]) -> usize {
    let port = u16::from_be_bytes([frame[36], frame[37]]) - PORT_FIRST;
    usize::from(frame[33] - FIRST) * PORTS + usize::from(port)
}

/// A client's segment without payload. Its TCP checksum is left out, as on a link without noise.
fn frame(at: usize, client: Client, flags: u8) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&CARD);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
    let is_syn = flags == SYN;
    let tcp_bytes: u8 = if is_syn { 24 } else { 20 };
    let ip = &mut frame[14..34];
    ip[..12].copy_from_slice(&[0x45, 0, 0, 20 + tcp_bytes, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    ip[12..16].copy_from_slice(&[10, 1, 0, (at / PORTS) as u8 + FIRST]);
    ip[16..].copy_from_slice(&OWN.octets());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut frame[34..];
    tcp[..2].copy_from_slice(&((at % PORTS) as u16 + PORT_FIRST).to_be_bytes());
    tcp[2..4].copy_from_slice(&PORT.to_be_bytes());
    tcp[4..8].copy_from_slice(&client.sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&client.acknowledged.to_be_bytes());
    tcp[12] = tcp_bytes << 2;
    tcp[13] = flags;
    tcp[14..16].copy_from_slice(&60_000_u16.to_be_bytes());
    if is_syn {
        tcp[20..24].copy_from_slice(&[2, 4, 5, 180]);
    }
    frame
}
