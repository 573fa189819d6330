//! Clients and servers on the kernel's sockets: beyond the loopback for the kernel stack, beyond a TAP device or a veth pair for TCP/IP
//! of our own.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use dpu_server::stack::Stack;
use dpu_server::stack::kernel::{Kernel, Uring};
use dpu_server::stack::smoltcp::Smoltcp;
use mqttshim_integration::namespace::{CARD, CARD_INTERFACE, HOST, INTERFACE, Link, Namespace};
use mqttshim_integration::needs;
use mqttshim_port::Port;
use mqttshim_port::tap::Tap;
use mqttshim_port::xdp::Xdp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::world::{Heard, World};

/// See the module.
pub(crate) struct OnKernel<S> {
    stack: S,
    card: IpAddr,
    /// Where clients are.
    host: IpAddr,
    host6: IpAddr,
    clients: Vec<TcpStream>,
    servers: Vec<TcpListener>,
    deaf: Vec<TcpListener>,
    _namespace: Option<Namespace>,
}

impl<S> OnKernel<S> {
    fn new(stack: S, card: IpAddr, hosts: [IpAddr; 2], namespace: Option<Namespace>) -> Self {
        let [host, host6] = hosts;
        let (clients, servers, deaf) = (Vec::new(), Vec::new(), Vec::new());
        OnKernel { stack, card, host, host6, clients, servers, deaf, _namespace: namespace }
    }

    /// In the place of a client that went: a socket that nobody asks.
    fn nobody(&self) -> TcpStream {
        let unbound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        unbound.expect("a descriptor is free").into()
    }

    fn take(&mut self, stream: TcpStream) -> usize {
        stream.set_nonblocking(true).expect("our own socket");
        self.clients.push(stream);
        self.clients.len() - 1
    }
}

/// The kernel stack, one call a send.
pub(crate) fn plain() -> Option<OnKernel<Kernel>> {
    Some(over_loopback(None))
}

/// The kernel stack with an io_uring, where this machine grants one.
pub(crate) fn in_batches() -> Option<OnKernel<Kernel>> {
    match Uring::new() {
        Ok(uring) => Some(over_loopback(Some(uring))),
        Err(refused) => {
            let _ = needs::skip(&format!("no io_uring: {refused}"));
            None
        }
    }
}

fn over_loopback(uring: Option<Uring>) -> OnKernel<Kernel> {
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let stack = Kernel::new(uring).expect("an epoll set");
    OnKernel::new(stack, v4, [v4, v6], None)
}

/// TCP/IP of our own on a TAP device in a network namespace, as root.
pub(crate) fn over_tap() -> Option<OnKernel<Smoltcp<Tap>>> {
    let namespace = Namespace::enter(Link::Tap)?;
    let port = Tap::open(INTERFACE).expect("root may");
    Some(over_port(port, namespace))
}

/// The same past the kernel's own at the end of a veth pair.
pub(crate) fn over_veth() -> Option<OnKernel<Smoltcp<Xdp>>> {
    let namespace = Namespace::enter(Link::Veth)?;
    let port = Xdp::open(CARD_INTERFACE, &CARD.map(ip), None).expect("root may");
    Some(over_port(port, namespace))
}

fn over_port<P: Port>(port: P, namespace: Namespace) -> OnKernel<Smoltcp<P>> {
    let addresses = CARD.map(|text| text.parse().expect("an address")).to_vec();
    let stack = Smoltcp::new(port, addresses, None).expect("an epoll set");
    OnKernel::new(stack, ip(CARD[0]), HOST.map(ip), Some(namespace))
}

/// The address before the length of its network.
fn ip(text: &str) -> IpAddr {
    text.split('/').next().and_then(|ip| ip.parse().ok()).expect("an address")
}

impl<S: Stack> World for OnKernel<S> {
    type Stack = S;

    fn stack(&mut self) -> &mut S {
        &mut self.stack
    }

    fn card(&self) -> IpAddr {
        self.card
    }

    fn host(&self) -> IpAddr {
        self.host
    }

    fn dial(&mut self, to: SocketAddr) -> usize {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .expect("a descriptor is free");
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => panic!("connect to {to}: {error}"),
        }
        self.take(socket.into())
    }

    fn dialled(&mut self, client: usize) -> Option<Result<SocketAddr, ErrorKind>> {
        let stream = &self.clients[client];
        let mut watched = [PollFd::new(stream, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut watched, Some(&at_once)).expect("poll works") == 0 {
            return None;
        }
        Some(match sockopt::socket_error(stream).expect("our own socket") {
            Ok(()) => stream.local_addr().map_err(|error| error.kind()),
            Err(error) => Err(error.kind()),
        })
    }

    fn say(&mut self, client: usize, bytes: &[u8]) -> usize {
        match self.clients[client].write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("a client writes: {error}"),
        }
    }

    fn is_refused(&mut self, client: usize, bytes: &[u8]) -> bool {
        matches!(self.clients[client].write(bytes), Err(error) if error.kind() == ErrorKind::BrokenPipe)
    }

    fn hear(&mut self, client: usize, bytes: &mut Vec<u8>) -> Heard {
        let mut buffer = [0; 65_536];
        loop {
            match self.clients[client].read(&mut buffer) {
                Ok(0) => return Heard::Fin,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) => {
                    return match error.kind() {
                        ErrorKind::WouldBlock => Heard::Open,
                        ErrorKind::ConnectionReset => Heard::Reset,
                        other => panic!("a client reads: {other}"),
                    };
                }
            }
        }
    }

    fn fin(&mut self, client: usize) {
        self.clients[client].shutdown(Shutdown::Write).expect("it is connected");
    }

    fn reset(&mut self, client: usize) {
        let stream = &self.clients[client];
        sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("our own socket");
        self.clients[client] = self.nobody();
    }

    fn leave(&mut self, client: usize) {
        self.clients[client] = self.nobody();
    }

    fn serve(&mut self) -> SocketAddr {
        let server = TcpListener::bind((self.host, 0)).expect("a port is free");
        server.set_nonblocking(true).expect("our own socket");
        let address = server.local_addr().expect("it is bound");
        self.servers.push(server);
        address
    }

    fn serve6(&mut self) -> SocketAddr {
        let server = TcpListener::bind((self.host6, 0)).expect("a port is free");
        let address = server.local_addr().expect("it is bound");
        self.servers.push(server);
        address
    }

    fn serve_deaf(&mut self) -> SocketAddr {
        let flags = SocketFlags::CLOEXEC;
        let server = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .expect("a descriptor is free");
        rustix::net::bind(&server, &SocketAddr::new(self.host, 0)).expect("a port is free");
        rustix::net::listen(&server, 0).expect("it is bound");
        let server = TcpListener::from(server);
        let address = server.local_addr().expect("it is bound");
        let first = TcpStream::connect(address).expect("one may wait");
        self.clients.push(first);
        // Not looked at by `served`.
        self.deaf.push(server);
        address
    }

    fn served(&mut self) -> Option<usize> {
        let (stream, _) = self.servers.iter().find_map(|server| server.accept().ok())?;
        Some(self.take(stream))
    }
}
