//! Two servers, on our own TCP/IP and on the kernel's: each sends without end, or drops what it gets, as the first byte of a connection asks
//! for.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use dpu_server::stack::smoltcp::Smoltcp;
use dpu_server::stack::{AcceptError, Batch, End, Event, Key, Received, Sent, Stack};
use mqttshim_integration::namespace::CARD_INTERFACE;
use mqttshim_port::xdp::Xdp;
use socket2::{Domain, Socket, Type};

use super::sizes;

/// Where our own TCP/IP serves, and the kernel's.
pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const KERNELS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// With buffers of [`sizes::BUFFER_BYTES`], and, by the kernel's alone, with those that a socket comes with.
pub(crate) const BOUNDED: u16 = 1883;
pub(crate) const FREE: u16 = 1884;
/// A connection's first byte.
pub(crate) const FROM: u8 = b'f';
pub(crate) const TO: u8 = b't';

const LISTENER: Key = Key(0);
const BACKLOG: i32 = 64;
/// More than there are streams at once, and of the turn before.
const KEYS: u32 = 100;
const CHUNK_BYTES: usize = 64 * 1024;

/// Starts both in the namespace of this thread, where the interface is; they serve as long as the program runs.
pub(crate) fn start() {
    let (tell, told) = mpsc::channel();
    // A stack is its thread's own.
    std::thread::spawn(move || Ours::new().run(&tell));
    told.recv().expect("it serves");
    for port in [BOUNDED, FREE] {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        sizes::set(&listener, port == BOUNDED);
        listener.bind(&SocketAddr::from((KERNELS, port)).into()).expect("a name");
        listener.listen(BACKLOG).expect("a listener");
        std::thread::spawn(move || accept(&listener.into()));
    }
}

fn accept(listener: &TcpListener) {
    loop {
        let (stream, _) = listener.accept().expect("a connection");
        std::thread::spawn(move || serve(stream));
    }
}

/// Until the client resets it.
fn serve(mut stream: TcpStream) {
    let mut chunk = vec![0; CHUNK_BYTES];
    if stream.read_exact(&mut chunk[..1]).is_err() {
        return;
    }
    let sends = chunk[0] == FROM;
    while let Ok(1..) = if sends { stream.write(&chunk) } else { stream.read(&mut chunk) } {}
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Nothing,
    /// It is read from; what it wants may have to come yet.
    Read,
    SentTo,
}

struct Ours {
    stack: Smoltcp<Xdp>,
    /// By key.
    roles: Vec<Role>,
    free: Vec<Key>,
}

impl Ours {
    /// With the buffers that a connection has without being asked, which is [`sizes::BUFFER_BYTES`].
    fn new() -> Ours {
        let port = Xdp::open(CARD_INTERFACE, &[IpAddr::V4(OURS)], None).expect("AF_XDP");
        let own = format!("{OURS}/24").parse().expect("an address");
        let mut stack = Smoltcp::new(port, vec![own], None).expect("a stack");
        stack.bind(LISTENER, 0, (OURS, BOUNDED).into(), &[]).expect("a name");
        stack.listen(LISTENER, BACKLOG, &[]).expect("a listener");
        let roles = vec![Role::Nothing; KEYS as usize];
        Ours { stack, roles, free: (1..KEYS).rev().map(Key).collect() }
    }

    /// Serves; says so once.
    fn run(&mut self, tell: &mpsc::Sender<()>) {
        tell.send(()).expect("it is waited for");
        let mut events = Vec::new();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            self.stack.wait(None, &mut events).expect("the interface stays");
            for event in events.drain(..) {
                let Event::Socket { key, readable, .. } = event else { continue };
                if key == LISTENER {
                    self.accept();
                } else if self.roles[key.index()] == Role::Nothing {
                    // It ended by an event before this one.
                } else if readable && self.read(key, &mut buffer) {
                    self.stack.close(key, End::Reset);
                    self.roles[key.index()] = Role::Nothing;
                    self.free.push(key);
                } else if self.roles[key.index()] == Role::SentTo {
                    self.send(key, &buffer);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Some(key) = self.free.pop() {
            match self.stack.accept(LISTENER, key) {
                Ok(_) => self.roles[key.index()] = Role::Read,
                Err(AcceptError::Empty) => return self.free.push(key),
                Err(error) => panic!("accept: {error}"),
            }
        }
        panic!("more connections than streams");
    }

    /// Drops what came; whether the client has ended.
    fn read(&mut self, key: Key, buffer: &mut [u8]) -> bool {
        loop {
            match self.stack.recv(key, buffer) {
                Received::Bytes(_) if buffer[0] == FROM => self.roles[key.index()] = Role::SentTo,
                Received::Bytes(_) => {}
                Received::Empty => return false,
                Received::Fin | Received::Gone(_) => return true,
            }
        }
    }

    /// As much as the connection takes.
    fn send(&mut self, key: Key, bytes: &[u8]) {
        let mut sent = Vec::new();
        loop {
            let mut batch = Batch::default();
            batch.push(key, std::iter::once(bytes));
            self.stack.send(&batch, &mut sent);
            match sent.first() {
                Some(Sent::Bytes(count)) if *count == bytes.len() => {}
                _ => return,
            }
        }
    }
}
