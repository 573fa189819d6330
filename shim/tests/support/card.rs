//! A card for tests: the real agent, and behind it sockets of this machine, all in one thread.
//!
//! ```text
//! program under test ═ session ═ Agent ── in-process channel ── Card ── loopback ── the test's own client
//! ```
//!
//! It does what a card must and no more: no MQTT, no batching. What programs notified is kept for the test to look at.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttshim_agent::{Agent, AgentConfig};
use mqttshim_channel::CommChannel;
use mqttshim_channel::in_process::{self, InProcess};
use mqttshim_schema::{
    Hello, How, Message, Notice, OptionAction, RequestId, SocketId, SocketOption,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

const WINDOW_BYTES: u32 = 256 * 1024;
const MESSAGE_BYTES: usize = 64 * 1024;
const UNSPECIFIED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// What programs said beside their streams.
#[derive(Default)]
struct Heard {
    notices: Mutex<Vec<(Notice, String)>>,
    /// The latest policy epoch.
    epoch: AtomicU64,
    /// Turns of agent and card.
    turns: AtomicU64,
}

/// A running card. Dropping it is a kill: nothing is said to anybody.
pub(crate) struct Card {
    path: PathBuf,
    is_stopped: Arc<AtomicBool>,
    heard: Arc<Heard>,
    thread: Option<JoinHandle<()>>,
}

impl Card {
    /// Starts a card with its session in `folder`.
    pub(crate) fn start(folder: &Path) -> Card {
        let path = folder.join("session.sock");
        let is_stopped = Arc::new(AtomicBool::new(false));
        let heard = Arc::new(Heard::default());
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn({
            let (path, is_stopped, heard) = (path.clone(), is_stopped.clone(), heard.clone());
            move || run(path, &is_stopped, &heard, &ready)
        });
        is_ready.recv().expect("the card starts");
        Card { path, is_stopped, heard, thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What programs notified so far.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.told().into_iter().map(|(notice, _)| notice).collect()
    }

    /// The same, with the detail of each.
    pub(crate) fn told(&self) -> Vec<(Notice, String)> {
        self.heard.notices.lock().unwrap().clone()
    }

    /// The policy epoch, once everything has been heard that any program said before this call.
    pub(crate) fn settled_epoch(&self) -> u64 {
        let turns = || self.heard.turns.load(Ordering::SeqCst);
        // The turn under way may have begun before.
        let enough = turns() + 3;
        while turns() < enough {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.heard.epoch.load(Ordering::SeqCst)
    }

    /// Waits, ten seconds at most, until the notices satisfy `condition`.
    #[track_caller]
    pub(crate) fn wait_for(&self, condition: impl Fn(&[Notice]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition(&self.notices()) {
            assert!(Instant::now() < deadline, "notices: {:?}", self.notices());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().expect("taken here only").join();
        if !std::thread::panicking() {
            outcome.expect("the card did not panic");
        }
    }
}

fn run(path: PathBuf, is_stopped: &AtomicBool, heard: &Heard, ready: &mpsc::Sender<()>) {
    let config = AgentConfig {
        session_path: Some(path),
        session_group: None,
        sockets_max: 4096,
        sessions_per_uid_max: 64,
    };
    let mut agent = Agent::open(config).unwrap();
    let (mut host, card) = in_process::pair(MESSAGE_BYTES, 1024);
    let mut sockets = Sockets::new(card, heard);
    ready.send(()).unwrap();
    while !is_stopped.load(Ordering::Relaxed) {
        agent.handle_events();
        let mut has_moved = agent.turn(&mut host, Instant::now());
        has_moved |= sockets.turn();
        heard.turns.fetch_add(1, Ordering::SeqCst);
        if !has_moved && agent.prepare_sleep() {
            // Its own pace: nothing here depends on how long it is.
            std::thread::sleep(Duration::from_micros(200));
            agent.woke();
        }
    }
}

struct Sockets<'a> {
    channel: InProcess,
    heard: &'a Heard,
    sockets: HashMap<SocketId, Socket>,
    next: u32,
    stamp: u64,
    beaten: Instant,
}

struct Socket {
    fd: OwnedFd,
    role: Role,
    /// Bytes the host still takes.
    window: u64,
    unsent: VecDeque<u8>,
    is_read_over: bool,
    is_shut: bool,
    /// The host closed; `true`: with bytes unread.
    closing: Option<bool>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Bound,
    Listener,
    Connecting,
    Connection,
}

impl Socket {
    fn new(fd: OwnedFd, role: Role) -> Socket {
        Socket {
            fd,
            role,
            window: 64 * 1024,
            unsent: VecDeque::new(),
            is_read_over: false,
            is_shut: false,
            closing: None,
        }
    }
}

impl<'a> Sockets<'a> {
    fn new(channel: InProcess, heard: &'a Heard) -> Self {
        let sockets = HashMap::new();
        Sockets { channel, heard, sockets, next: 2, stamp: 0, beaten: Instant::now() }
    }

    fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        mqttshim_schema::encode(message, &mut bytes).unwrap();
        self.channel.send(&bytes).expect("the agent takes messages as fast as they come");
    }

    fn turn(&mut self) -> bool {
        let mut has_moved = false;
        let mut bytes = Vec::new();
        while self.channel.recv(&mut bytes).is_ok() {
            has_moved = true;
            let message = mqttshim_schema::decode(&bytes).unwrap();
            self.handle(message);
        }
        if self.beaten.elapsed() > Duration::from_secs(1) {
            self.beaten = Instant::now();
            self.say(&Message::Heartbeat { sequence: 0 });
        }
        let ids: Vec<SocketId> = self.sockets.keys().copied().collect();
        for id in ids {
            has_moved |= match self.sockets[&id].role {
                Role::Bound => false,
                Role::Listener => self.accept(id),
                Role::Connecting => self.finish_connect(id),
                Role::Connection => self.send(id) | self.receive(id),
            };
        }
        has_moved
    }

    fn handle(&mut self, message: Message<'_>) {
        match message {
            Message::Hello(_) => self.greet(),
            Message::Bind { request, socket, address, options, .. } => {
                let bound = bind(address, &options);
                let errno = bound.as_ref().err().map_or(0, |errno| errno.raw_os_error());
                let mut own = UNSPECIFIED;
                if let Ok(fd) = bound {
                    own = rustix::net::getsockname(&fd).unwrap().try_into().unwrap();
                    self.sockets.insert(socket, Socket::new(fd, Role::Bound));
                }
                self.say(&Message::Reply { request, errno, address: own, value: &[] });
            }
            Message::Listen { request, socket, backlog, options, .. } => {
                let place = self.sockets.get_mut(&socket).unwrap();
                set_options(&place.fd, &options).unwrap();
                rustix::net::listen(&place.fd, backlog).unwrap();
                place.role = Role::Listener;
                self.say(&Message::Reply { request, errno: 0, address: UNSPECIFIED, value: &[] });
            }
            Message::Connect { request, socket, address, options, .. } => {
                if let std::collections::hash_map::Entry::Vacant(entry) = self.sockets.entry(socket)
                {
                    entry.insert(Socket::new(tcp(address), Role::Bound));
                }
                let place = self.sockets.get_mut(&socket).unwrap();
                set_options(&place.fd, &options).unwrap();
                place.role = Role::Connecting;
                let begun = rustix::net::connect(&place.fd, &address);
                assert!(matches!(begun, Ok(()) | Err(Errno::INPROGRESS)), "{begun:?}");
                self.say(&Message::Reply { request, errno: 0, address: UNSPECIFIED, value: &[] });
            }
            Message::Option { request, socket, level, name, action } => {
                self.option(request, socket, level, name, action);
            }
            Message::Notice { what, detail, .. } => {
                self.heard.notices.lock().unwrap().push((what, detail.to_owned()));
            }
            Message::PolicyChanged { epoch, .. } => self.heard.epoch.store(epoch, Ordering::SeqCst),
            Message::Data { socket, bytes, .. } => {
                if let Some(place) = self.sockets.get_mut(&socket) {
                    place.unsent.extend(bytes);
                }
            }
            Message::Credit { socket, bytes } => {
                if let Some(place) = self.sockets.get_mut(&socket) {
                    place.window += u64::from(bytes);
                }
            }
            Message::Shutdown { socket, how, .. } => {
                if let Some(place) = self.sockets.get_mut(&socket) {
                    place.is_shut |= how != How::Read;
                }
            }
            Message::Close { socket, unread, .. } => match self.sockets.get_mut(&socket) {
                Some(place) if place.role == Role::Connection => place.closing = Some(unread),
                _ => {
                    self.sockets.remove(&socket);
                    self.say(&Message::Close { socket, stamp: 0, unread: false });
                }
            },
            Message::Blocked { .. } | Message::Heartbeat { .. } => {}
            other => panic!("a card got {other:?}"),
        }
    }

    fn greet(&mut self) {
        self.say(&Message::Hello(Hello {
            version_min: 1,
            version_max: 1,
            max_message_bytes: MESSAGE_BYTES as u32,
            window_bytes: WINDOW_BYTES,
            layout_min: 0,
            layout_max: 0,
            program: "test card",
        }));
    }

    fn option(
        &mut self,
        request: RequestId,
        socket: SocketId,
        level: i32,
        name: i32,
        action: OptionAction<'_>,
    ) {
        let fd = &self.sockets[&socket].fd;
        let (errno, value) = match action {
            OptionAction::Set(value) => {
                let option = SocketOption { level, name, value };
                (set_options(fd, &[option]).err(), Vec::new())
            }
            OptionAction::Get(room) => match get_option(fd, level, name, room) {
                Ok(value) => (None, value),
                Err(errno) => (Some(errno), Vec::new()),
            },
        };
        let errno = errno.map_or(0, |errno| errno.raw_os_error());
        self.say(&Message::Reply { request, errno, address: UNSPECIFIED, value: &value });
    }

    fn accept(&mut self, listener: SocketId) -> bool {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let Ok((fd, peer)) = rustix::net::acceptfrom_with(&self.sockets[&listener].fd, flags)
        else {
            return false;
        };
        let peer: SocketAddr = peer.unwrap().try_into().unwrap();
        let local: SocketAddr = rustix::net::getsockname(&fd).unwrap().try_into().unwrap();
        let socket = SocketId(self.next);
        self.next += 2;
        self.sockets.insert(socket, Socket::new(fd, Role::Connection));
        self.say(&Message::Accepted { listener, socket, local, peer });
        true
    }

    fn finish_connect(&mut self, socket: SocketId) -> bool {
        let place = self.sockets.get_mut(&socket).unwrap();
        let outcome = match sockopt::socket_error(&place.fd).unwrap() {
            Err(errno) => Err(errno),
            Ok(()) => match rustix::net::getpeername(&place.fd) {
                Ok(peer) => Ok(peer.unwrap().try_into().unwrap()),
                Err(_) => return false,
            },
        };
        place.role = Role::Connection;
        let errno = outcome.err().map_or(0, |errno: Errno| errno.raw_os_error());
        place.is_read_over = outcome.is_err();
        let local = rustix::net::getsockname(&place.fd).unwrap().try_into().unwrap();
        let peer = outcome.unwrap_or(UNSPECIFIED);
        self.say(&Message::Connected { socket, errno, local, peer });
        true
    }

    fn send(&mut self, socket: SocketId) -> bool {
        let place = self.sockets.get_mut(&socket).unwrap();
        let mut sent = 0;
        while !place.unsent.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&place.fd, place.unsent.as_slices().0, flags) {
                Ok(taken) => {
                    place.unsent.drain(..taken);
                    sent += taken;
                }
                Err(Errno::AGAIN) => break,
                Err(_) => place.unsent.clear(),
            }
        }
        let is_flushed = place.unsent.is_empty();
        if is_flushed && place.is_shut {
            place.is_shut = false;
            let _ = rustix::net::shutdown(&place.fd, rustix::net::Shutdown::Write);
        }
        if is_flushed && let Some(unread) = place.closing {
            if unread {
                let _ = sockopt::set_socket_linger(&place.fd, Some(Duration::ZERO));
            }
            self.sockets.remove(&socket);
            self.say(&Message::Close { socket, stamp: 0, unread: false });
            return true;
        }
        if sent > 0 {
            self.say(&Message::Credit { socket, bytes: sent as u32 });
        }
        sent > 0
    }

    fn receive(&mut self, socket: SocketId) -> bool {
        let Some(place) = self.sockets.get_mut(&socket) else { return false };
        if place.is_read_over || place.window == 0 || place.closing.is_some() {
            return false;
        }
        let mut bytes = [0; 16 * 1024];
        let room = bytes.len().min(place.window as usize);
        let received = rustix::net::recv(&place.fd, &mut bytes[..room], RecvFlags::DONTWAIT);
        self.stamp += 1;
        let stamp = self.stamp;
        match received {
            Err(Errno::AGAIN) => return false,
            Ok((_, 0)) => {
                place.is_read_over = true;
                self.say(&Message::Eof { socket, stamp });
            }
            Ok((_, length)) => {
                place.window -= length as u64;
                self.say(&Message::Data { socket, stamp, read: 0, bytes: &bytes[..length] });
            }
            Err(errno) => {
                place.is_read_over = true;
                self.say(&Message::Reset { socket, errno: errno.raw_os_error() });
            }
        }
        true
    }
}

fn tcp(address: SocketAddr) -> OwnedFd {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap()
}

fn bind(address: SocketAddr, options: &[SocketOption<'_>]) -> Result<OwnedFd, Errno> {
    let fd = tcp(address);
    set_options(&fd, options)?;
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

fn set_options(fd: &OwnedFd, options: &[SocketOption<'_>]) -> Result<(), Errno> {
    for option in options {
        let length = option.value.len() as libc::socklen_t;
        let value = option.value.as_ptr().cast();
        // SAFETY: the value is live and the length is its own.
        let outcome =
            unsafe { libc::setsockopt(fd.as_raw_fd(), option.level, option.name, value, length) };
        if outcome != 0 {
            let errno = last_errno();
            eprintln!("the card: {option:?}: {errno}");
            return Err(errno);
        }
    }
    Ok(())
}

fn get_option(fd: &OwnedFd, level: i32, name: i32, room: u32) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; room as usize];
    let mut length = room;
    let target = value.as_mut_ptr().cast();
    // SAFETY: value and length are live and the length is the value's.
    let outcome = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, target, &mut length) };
    value.truncate(length as usize);
    if outcome == 0 { Ok(value) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()
}
