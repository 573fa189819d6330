//! The socket calls, on the stack without port and clock. [`super`] adds these.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mqttshim_schema::{How, SocketOption};
use rustix::io::Errno;
use smoltcp::socket::tcp::State;
use smoltcp::wire::IpCidr;

use super::connection::{Connection, Stage};
use super::listener::{Listener, Name};
use super::options::{Options, Phase, tell_state};
use super::segment::Flow;
use super::sockets::{Role, Socket, unspecified_like};
use super::tcp::Tcp;
use crate::stack::{AcceptError, End, Ends, Event, Key, Received, Sent};
use mqttshim_port::Transmit;

impl Tcp {
    pub(super) fn bind(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let options = with_options(Options::new(address), Phase::New, options)?;
        let effects = options.effects();
        let plain = plain(address.ip());
        if !plain.is_unspecified() && !self.link.is_own(plain) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let name = self.sockets.claim(
            key,
            Name {
                address,
                uid,
                may_share_port: effects.may_share_port,
                may_reuse: effects.may_reuse,
                is_v6_only: effects.is_v6_only,
                is_listening: false,
            },
        )?;
        if self.flows.is_in_use(&name) {
            return Err(Errno::ADDRINUSE);
        }
        self.sockets.insert(key, name, options, Role::Named(None));
        Ok(name.address)
    }

    pub(super) fn listen(
        &mut self,
        key: Key,
        backlog: i32,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let socket = self.sockets.get_mut(key)?;
        let Role::Named(listener) = &mut socket.role else { return Err(Errno::INVAL) };
        if let Some(listener) = listener {
            listener.set_backlog(backlog);
            return Ok(socket.name.address);
        }
        let options = with_options(socket.options.clone(), Phase::Bound, options)?;
        let effects = options.effects();
        let name = Name {
            may_share_port: effects.may_share_port,
            may_reuse: effects.may_reuse,
            is_listening: true,
            ..socket.name
        };
        let name = self.sockets.claim(key, name)?;
        self.sockets.remove(key);
        self.sockets.insert(
            key,
            name,
            options,
            Role::Named(Some(Box::new(Listener::new(backlog)))),
        );
        Ok(name.address)
    }

    pub(super) fn accept(
        &mut self,
        now: Duration,
        listener: Key,
        key: Key,
    ) -> Result<Ends, AcceptError> {
        let socket = self.sockets.get_mut(listener).map_err(AcceptError::Failed)?;
        let (name, options) = (socket.name, socket.options.of_a_connection());
        let effects = socket.effects;
        let Role::Named(Some(from)) = &mut socket.role else {
            return Err(AcceptError::Failed(Errno::INVAL));
        };
        let id = from.queue.pop_front().ok_or(AcceptError::Empty)?;
        let connection = &mut self.connections[id];
        connection.stage = Stage::Held;
        connection.key = Some(key);
        connection.take_effect(now, &effects);
        let asks = effects.keep_alive.is_some();
        self.sockets.insert(key, name, options, Role::Connected(id));
        if asks {
            self.schedule(now, id);
        }
        self.tell(id);
        Ok(self.ends(key, id))
    }

    /// Both ends as the holder of `key` sees them.
    fn ends(&self, key: Key, id: u32) -> Ends {
        let (local, peer) = self.flow(id);
        match self.sockets.get(key) {
            Ok(socket) => Ends { local: socket.name.seen(local), peer: socket.name.seen(peer) },
            Err(_) => Ends { local, peer },
        }
    }

    pub(super) fn connect(
        &mut self,
        now: Duration,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let (mut name, kept) = match self.sockets.get(key) {
            Ok(Socket { role: Role::Connected(_), .. }) => return Err(Errno::ISCONN),
            Ok(socket) => (socket.name, socket.options.clone()),
            Err(_) => {
                let own = unspecified_like(address);
                (Name::unbound(own, uid), Options::new(own))
            }
        };
        let was_bound = name.address.port() != 0;
        let phase = if was_bound { Phase::Bound } else { Phase::New };
        let options = with_options(kept, phase, options)?;
        let remote = SocketAddr::new(plain(address.ip()), address.port());
        let bound = plain(name.address.ip());
        let source =
            if bound.is_unspecified() { self.link.source(remote.ip()) } else { Some(bound) };
        let source = source.ok_or(Errno::NETUNREACH)?;
        if self.is_for_many(remote.ip()) {
            return Err(Errno::NETUNREACH);
        }
        self.link.next_hop(remote.ip()).ok_or(Errno::NETUNREACH)?;
        let local = self.local_end(source, name.address.port(), remote)?;
        let flow = Flow { local, remote };
        name.address = name.seen(local);
        if !self.budget.takes_another() {
            return Err(Errno::NOBUFS);
        }
        let first = self.flows.first_number(&flow, now);
        let buffers = self.sockets.buffers(key);
        let mut connection = Connection::new(flow, name, None, Stage::Connecting, buffers, first);
        connection.key = Some(key);
        self.begin_connect(&mut connection, flow)?;
        self.sockets.remove(key);
        connection.take_effect(now, &options.effects());
        let id = self.insert(connection);
        self.sockets.insert(key, name, options, Role::Connected(id));
        if was_bound {
            self.sockets.keep_port(key);
        }
        self.seek(now, id);
        Ok(name.address)
    }

    /// Whether an address is a multicast or a broadcast one, on one of the card's networks (RFC 9293 MUST-46).
    fn is_for_many(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return ip.is_multicast() };
        let is_of = |own: &IpCidr| match own {
            IpCidr::Ipv4(own) => own.broadcast() == Some(ip),
            IpCidr::Ipv6(_) => false,
        };
        ip.is_multicast() || ip.is_broadcast() || self.iface.ip_addrs().iter().any(is_of)
    }

    /// An end of the card's that makes a new flow.
    fn local_end(
        &mut self,
        ip: IpAddr,
        port: u16,
        remote: SocketAddr,
    ) -> Result<SocketAddr, Errno> {
        if port != 0 {
            let local = SocketAddr::new(ip, port);
            return if self.has_flow(Flow { local, remote }) {
                Err(Errno::ADDRNOTAVAIL)
            } else {
                Ok(local)
            };
        }
        for _ in 0..u16::MAX {
            let local = SocketAddr::new(ip, self.sockets.next_port());
            if !self.has_flow(Flow { local, remote }) {
                return Ok(local);
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    pub(super) fn connect_result(&mut self, key: Key) -> Option<Result<Ends, Errno>> {
        let id = self.sockets.connection(key)?;
        let connection = &mut self.connections[id];
        if connection.stage != Stage::Connecting {
            return None;
        }
        if let Some(error) = connection.error.take() {
            self.remove(id);
            return Some(Err(error));
        }
        if matches!(connection.socket.state(), State::SynSent | State::SynReceived) {
            return None;
        }
        connection.stage = Stage::Held;
        Some(Ok(self.ends(key, id)))
    }

    pub(super) fn option(
        &mut self,
        key: Key,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        let id = self.sockets.connection(key);
        let is_v6 = self.sockets.get(key)?.name.address.is_ipv6();
        if let Some(known) = id.and_then(|id| self.known_of(id, is_v6, level, name)) {
            let bytes = value.len().min(4);
            value[..bytes].copy_from_slice(&known.to_ne_bytes()[..bytes]);
            return Ok(bytes);
        }
        let bytes = self.sockets.get(key)?.options.get(level, name, value)?;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = id.and_then(|id| self.connections[id].error.take());
                let number = error.map_or(0, Errno::raw_os_error).to_ne_bytes();
                value[..bytes].copy_from_slice(&number[..bytes]);
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                let listens = matches!(self.sockets.get(key)?.role, Role::Named(Some(_)));
                let number = i32::from(listens).to_ne_bytes();
                value[..bytes].copy_from_slice(&number[..bytes]);
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let socket = self.sockets.get(key)?;
                tell_state(&mut value[..bytes], self.state(socket));
            }
            (libc::SOL_SOCKET, libc::SO_COOKIE) => {
                // Another for each: a connection has a number of its own, a name its holder's.
                let named = 1 << 63 | u64::from(key.0);
                let serial = id.map_or(named, |id| self.connections[id].serial);
                value[..bytes].copy_from_slice(&serial.to_ne_bytes()[..bytes]);
            }
            _ => {}
        }
        Ok(bytes)
    }

    /// What an option tells of the connection itself, on a socket of IPv6 or IPv4: ip(7), ipv6(7), tcp(7).
    fn known_of(&self, id: u32, is_v6: bool, level: i32, name: i32) -> Option<i32> {
        let mtu = self.mtu();
        let headers = if self.flow(id).0.is_ipv4() { 40 } else { 60 };
        let known = match (level, name) {
            (libc::IPPROTO_IP, libc::IP_MTU) => mtu,
            (libc::IPPROTO_IPV6, libc::IPV6_MTU) if is_v6 => mtu,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => mtu - headers,
            (libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM) if is_v6 => libc::AF_INET6 as usize,
            _ => return None,
        };
        i32::try_from(known).ok()
    }

    /// As `include/net/tcp_states.h` numbers them.
    fn state(&self, socket: &Socket) -> u8 {
        match &socket.role {
            Role::Named(None) | Role::Gone => 7,
            Role::Named(Some(_)) => 10,
            Role::Connected(id) => match self.connections[*id].socket.state() {
                State::Established => 1,
                State::SynSent => 2,
                State::SynReceived => 3,
                State::FinWait1 => 4,
                State::FinWait2 => 5,
                // In TIME-WAIT the kernel has taken the connection from its socket, which is closed.
                State::TimeWait | State::Closed | State::Listen => 7,
                State::CloseWait => 8,
                State::LastAck => 9,
                State::Closing => 11,
            },
        }
    }

    pub(super) fn set_option(
        &mut self,
        now: Duration,
        key: Key,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let socket = self.sockets.get_mut(key)?;
        socket.options.set(socket.role.phase(), level, name, value)?;
        socket.effects = socket.options.effects();
        let effects = socket.effects;
        if let Role::Connected(id) = socket.role {
            self.connections[id].take_effect(now, &effects);
            self.schedule(now, id);
        }
        Ok(())
    }

    pub(super) fn recv(&mut self, now: Duration, key: Key, buffer: &mut [u8]) -> Received {
        let Ok(socket) = self.sockets.get(key) else { return Received::Gone(Errno::BADF) };
        let Role::Connected(id) = socket.role else {
            return match socket.role {
                Role::Gone => Received::Fin,
                _ => Received::Gone(Errno::NOTCONN),
            };
        };
        let connection = &mut self.connections[id];
        let taken = connection.receive(buffer);
        if taken > 0 {
            self.shrink(now, id);
            // The window may have grown.
            self.schedule(now, id);
            return Received::Bytes(taken);
        }
        let connection = &mut self.connections[id];
        // As Linux has it: after the client's FIN a reader is told of nothing more.
        if connection.is_finished || connection.is_read_shut() {
            return Received::Fin;
        }
        match connection.error.take() {
            Some(error) => Received::Gone(error),
            None if connection.is_end_told => Received::Fin,
            None => Received::Empty,
        }
    }

    /// Takes one connection's part of a batch into its buffer, and sends what may be sent at once: while it is at hand.
    pub(super) fn send(
        &mut self,
        now: Duration,
        key: Key,
        part: &[std::io::IoSlice<'_>],
        out: &mut impl Transmit,
    ) -> Sent {
        let Some(id) = self.sockets.connection(key) else {
            return Sent::Gone(self.sockets.get(key).err().unwrap_or(Errno::PIPE));
        };
        self.connections.lane_mut(id).forgive();
        let connection = &mut self.connections[id];
        if let Some(error) = connection.error.take() {
            return Sent::Gone(error);
        }
        if !connection.socket.may_send() {
            return Sent::Gone(Errno::PIPE);
        }
        let mut sent = 0;
        for slice in part {
            let most = self.budget.sends(slice.len(), &connection.socket);
            let taken = connection.socket.send_slice(&slice[..most]).unwrap_or(0);
            sent += taken;
            if taken < slice.len() {
                connection.is_full = true;
                break;
            }
        }
        self.budget.count(connection);
        // One that waits its turn already stays where it is.
        if !connection.is_dirty {
            self.transmit(now, id, out);
        }
        if sent == 0 { Sent::Full } else { Sent::Bytes(sent) }
    }

    pub(super) fn shutdown(&mut self, key: Key, how: How) -> Result<(), Errno> {
        let id = match &self.sockets.get(key)?.role {
            Role::Connected(id) => *id,
            Role::Gone | Role::Named(_) => return Err(Errno::NOTCONN),
        };
        let connection = &mut self.connections[id];
        if connection.place().is_none() {
            return Err(Errno::NOTCONN);
        }
        if matches!(how, How::Read | How::Both) {
            connection.shut_reading();
            self.events.push(Event::Socket { key, readable: true, writable: false, ended: true });
        }
        if matches!(how, How::Write | How::Both) {
            self.connections[id].socket.close();
            self.soil(id);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, key: Key, end: End) {
        let Some(socket) = self.sockets.remove(key) else { return };
        match socket.role {
            Role::Connected(id) => self.let_go(id, end == End::Reset),
            Role::Named(Some(listener)) => {
                for id in listener.queue {
                    self.let_go(id, true);
                }
                // Those whose handshake is under way will find nobody.
                let half_open: Vec<u32> = self
                    .connections
                    .iter()
                    .filter(|(_, it)| it.stage == Stage::HalfOpen(key))
                    .map(|(id, _)| id)
                    .collect();
                for id in half_open {
                    self.let_go(id, true);
                }
            }
            Role::Named(None) | Role::Gone => {}
        }
    }

    fn let_go(&mut self, id: u32, is_reset: bool) {
        self.connections[id].let_go(is_reset);
        self.free_flow(id);
        self.soil(id);
    }
}

fn with_options(
    mut kept: Options,
    phase: Phase,
    options: &[SocketOption<'_>],
) -> Result<Options, Errno> {
    for option in options {
        kept.set(phase, option.level, option.name, option.value)?;
    }
    Ok(kept)
}

/// An address of IPv4 that is written as one of IPv6 is one of IPv4.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}
