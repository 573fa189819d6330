//! A reference target inside this program: the same bytes to every subscriber, with a plain loop of `send()`.
//!
//! What distribution costs when there is no broker at all, only the machine's own TCP. One thread, blocking on one epoll
//! set. It speaks just enough MQTT to be measured by the same clients ([`answer`]): every PUBLISH goes unchanged to all who subscribed to
//! anything.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};

use super::answer::{Answer, answer};
use super::mqtt;
use super::rounds::Stop;

/// How long one subscriber may hold up all others before it is dropped.
const STALL: Duration = Duration::from_secs(1);

/// The running thread.
#[derive(Debug)]
pub(crate) struct BareSender {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The thread whose CPU is its cost.
    pub(crate) thread: u32,
    stop: Stop,
    join: Option<JoinHandle<Result<()>>>,
}

impl BareSender {
    /// Listens on a free port of `ip`.
    pub(crate) fn start(ip: IpAddr) -> Result<BareSender> {
        let listener = TcpListener::bind((ip, 0)).context("the bare sender cannot listen")?;
        listener.set_nonblocking(true).context("the bare sender's listener")?;
        let address = listener.local_addr().context("the bare sender's address")?;
        let stop = Stop::default();
        let stopped = stop.clone();
        let (tell, told) = mpsc::channel();
        let join = std::thread::Builder::new()
            .name("bare-send".to_owned())
            .spawn(move || {
                let id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())
                    .context("thread id")?;
                tell.send(id).context("the starter is gone")?;
                Room::new(listener)?.run(&stopped)
            })
            .context("cannot start a thread")?;
        let thread = told.recv().context("the bare sender ended at once")?;
        Ok(BareSender { address, thread, stop, join: Some(join) })
    }
}

impl Drop for BareSender {
    fn drop(&mut self) {
        self.stop.request();
        match self.join.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("mqttshim: bare sender: {error:#}"),
            Some(Err(_)) => eprintln!("mqttshim: the bare sender panicked"),
            _ => {}
        }
    }
}

#[derive(Debug)]
struct Peer {
    fd: OwnedFd,
    partial: Vec<u8>,
    subscribed: bool,
}

#[derive(Debug)]
struct Room {
    listener: TcpListener,
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
}

const LISTENER: u64 = u64::MAX;

impl Room {
    fn new(listener: TcpListener) -> Result<Room> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll_create")?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)
            .context("epoll_ctl")?;
        Ok(Room { listener, epoll, peers: Vec::new() })
    }

    fn run(&mut self, stop: &Stop) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        let mut buffer = vec![0; 64 << 10];
        let timeout = Duration::from_millis(100).try_into().context("timeout")?;
        while !stop.is_requested() {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            for event in &events {
                let event: &epoll::Event = event;
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => {
                        self.serve(usize::try_from(index).context("epoll data")?, &mut buffer);
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(fd) => {
                    sockopt::set_tcp_nodelay(&fd, true).context("TCP_NODELAY")?;
                    let data = EventData::new_u64(self.peers.len() as u64);
                    epoll::add(&self.epoll, &fd, data, EventFlags::IN).context("epoll_ctl")?;
                    self.peers.push(Some(Peer { fd, partial: Vec::new(), subscribed: false }));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error).context("accept"),
            }
        }
    }

    /// Reads one peer; whatever goes wrong with it ends it alone.
    fn serve(&mut self, index: usize, buffer: &mut [u8]) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let taken = match rustix::net::recv(&peer.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => None,
            Ok((_, taken)) => Some(taken),
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => None,
        };
        let Some(taken) = taken else {
            self.peers[index] = None;
            return;
        };
        let mut bytes = std::mem::take(&mut peer.partial);
        bytes.extend_from_slice(&buffer[..taken]);
        let mut used = 0;
        while let Ok(Some(length)) = mqtt::whole_packet(&bytes[used..]) {
            let packet = used..used + length;
            used += length;
            if !self.answer(index, &bytes[packet]) {
                self.peers[index] = None;
                return;
            }
        }
        bytes.drain(..used);
        if let Some(Some(peer)) = self.peers.get_mut(index) {
            peer.partial = bytes;
        }
    }

    /// Answers one packet; false ends the peer.
    fn answer(&mut self, index: usize, packet: &[u8]) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return false };
        match answer(packet) {
            Answer::Bytes(bytes) => send_all(peer, &bytes),
            Answer::Subscribed(bytes) => {
                peer.subscribed = true;
                send_all(peer, &bytes)
            }
            Answer::Distribute(puback) => {
                let answered = puback.is_none_or(|puback| send_all(peer, &puback));
                for place in &mut self.peers {
                    if place.as_ref().is_some_and(|p| p.subscribed && !send_all(p, packet)) {
                        *place = None;
                    }
                }
                answered
            }
            Answer::Nothing => true,
            Answer::End => false,
        }
    }
}

/// Sends everything, waiting for a slow peer up to [`STALL`]; false if it could not be sent.
fn send_all(peer: &Peer, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::net::send(&peer.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(&peer.fd, PollFlags::OUT)];
                let timeout = STALL.try_into().expect("one second");
                if !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1)) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}
