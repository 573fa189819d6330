//! A dpu-server of the test's own, and the host's end of its channel spoken by hand.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "each test binary has this module for itself and uses its part"
)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mqttshim_channel::emulated::Emulated;
use mqttshim_channel::{CommChannel, RecvError, SendError};
use mqttshim_schema::{
    Hello, Message, RequestId, SessionId, SocketId, SocketOption, VERSION_MAX, VERSION_MIN, decode,
    encode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const SESSION: SessionId = SessionId(1);
pub const LISTENER: SocketId = SocketId(1);
/// Room the host gives each stream at first.
pub const WINDOW_BYTES: u32 = 64 * 1024;

/// A running dpu-server. Killed when dropped.
pub struct Server {
    child: Child,
    pub folder: tempfile::TempDir,
}

impl Server {
    /// Starts one that waits for an agent, with these options and this file.
    pub fn start(options: &[&str], file: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("card.toml");
        std::fs::write(&config, file).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_dpu-server"))
            .args(["run", "--log", "debug", "--config"])
            .arg(&config)
            .arg("--channel")
            .arg(format!("emulated:{}", folder.path().join("card.sock").display()))
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Server { child, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("card.sock")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it still runs after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message the card sent, owned.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Told {
    Accepted { socket: SocketId, peer: SocketAddr },
    Data(SocketId, Vec<u8>),
    Eof(SocketId),
    Reset(SocketId),
    Credit(SocketId, u32),
    Close(SocketId),
    Reply(RequestId, i32, SocketAddr, Vec<u8>),
    Connected(SocketId, i32),
}

/// The host's end of the channel.
pub struct Host {
    channel: Emulated,
    buffer: Vec<u8>,
    queue: VecDeque<Told>,
    requests: u32,
    stamp: u64,
}

impl Host {
    /// Connects, retrying until the server is there, and exchanges Hellos.
    #[track_caller]
    pub fn connect(path: &Path) -> Host {
        let deadline = Instant::now() + PATIENCE;
        let channel = loop {
            match Emulated::connect(path) {
                Ok(channel) => break channel,
                Err(error) if Instant::now() < deadline && error.is_retryable() => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        };
        let mut host =
            Host { channel, buffer: Vec::new(), queue: VecDeque::new(), requests: 0, stamp: 0 };
        host.say(&Message::Hello(Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            max_message_bytes: 4080,
            window_bytes: WINDOW_BYTES,
            layout_min: 0,
            layout_max: 0,
            program: "test",
        }));
        host
    }

    /// Sends one message, taking what comes meanwhile.
    #[track_caller]
    pub fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        self.say_bytes(&bytes);
    }

    #[track_caller]
    pub fn say_bytes(&mut self, bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.channel.send(bytes) {
                Ok(()) => return,
                Err(SendError::WouldBlock) => {
                    assert!(Instant::now() < deadline, "no room for {PATIENCE:?}");
                    // The card may wait for room as well.
                    while self.try_take().is_ok() {}
                    self.wait(PollFlags::IN | PollFlags::OUT);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits for a message and queues it; false when the channel is gone.
    #[track_caller]
    fn take(&mut self, deadline: Instant) -> bool {
        loop {
            match self.try_take() {
                Ok(true) => return true,
                Ok(false) => {}
                Err(RecvError::Lost) => return false,
                Err(RecvError::Empty) => {
                    assert!(Instant::now() < deadline, "nothing came for {PATIENCE:?}");
                    self.wait(PollFlags::IN);
                }
            }
        }
    }

    /// Waits, for a while, until the channel is ready.
    fn wait(&self, flags: PollFlags) {
        let descriptor = self.channel.readiness().unwrap();
        let mut set = [PollFd::from_borrowed_fd(descriptor, flags)];
        poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).unwrap();
    }

    /// Takes one message; true if it was queued.
    fn try_take(&mut self) -> Result<bool, RecvError> {
        self.channel.recv(&mut self.buffer)?;
        let told = match decode(&self.buffer).unwrap() {
            Message::Hello(_) | Message::Heartbeat { .. } => return Ok(false),
            Message::Accepted { socket, peer, .. } => Told::Accepted { socket, peer },
            Message::Data { socket, bytes, .. } => Told::Data(socket, bytes.to_vec()),
            Message::Eof { socket, .. } => Told::Eof(socket),
            Message::Reset { socket, .. } => Told::Reset(socket),
            Message::Credit { socket, bytes } => Told::Credit(socket, bytes),
            Message::Close { socket, .. } => Told::Close(socket),
            Message::Reply { request, errno, address, value } => {
                Told::Reply(request, errno, address, value.to_vec())
            }
            Message::Connected { socket, errno, .. } => Told::Connected(socket, errno),
            other => panic!("{other:?}"),
        };
        self.queue.push_back(told);
        Ok(true)
    }

    /// Waits for a message for which `wanted` has an answer; leaves the others.
    #[track_caller]
    pub fn until<T>(&mut self, mut wanted: impl FnMut(&Told) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        loop {
            while let Some(told) = self.queue.get(seen) {
                if let Some(answer) = wanted(told) {
                    self.queue.remove(seen);
                    return answer;
                }
                seen += 1;
            }
            assert!(self.take(deadline), "the channel is gone; waiting: {:?}", self.queue);
        }
    }

    /// Whether the card hangs up, in time.
    #[track_caller]
    pub fn is_hung_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.take(deadline) {}
        true
    }

    #[track_caller]
    pub fn reply(&mut self, request: RequestId) -> (i32, SocketAddr, Vec<u8>) {
        self.until(|told| match told {
            Told::Reply(of, errno, address, value) if *of == request => {
                Some((*errno, *address, value.clone()))
            }
            _ => None,
        })
    }

    pub fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Binds a new socket; the answer's errno and address.
    #[track_caller]
    pub fn bind(&mut self, socket: SocketId, address: SocketAddr) -> (i32, SocketAddr) {
        let request = self.request();
        // As every broker does: a port whose last connections are in TIME_WAIT is free.
        let (level, name, value) = (libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()[..]);
        let options = vec![SocketOption { level, name, value }];
        let bind = Message::Bind { request, session: SESSION, socket, uid: 0, address, options };
        self.say(&bind);
        let (errno, address, _) = self.reply(request);
        (errno, address)
    }

    /// A listener on a free port of loopback.
    #[track_caller]
    pub fn listen(&mut self) -> SocketAddr {
        self.listen_on(LISTENER, (Ipv4Addr::LOCALHOST, 0).into())
    }

    #[track_caller]
    pub fn listen_on(&mut self, socket: SocketId, address: SocketAddr) -> SocketAddr {
        let (errno, address) = self.bind(socket, address);
        assert_eq!(errno, 0, "{address}");
        let request = self.request();
        let (placeholder, options) = ("", Vec::new());
        self.say(&Message::Listen { request, socket, backlog: 1024, placeholder, options });
        assert_eq!(self.reply(request).0, 0);
        address
    }

    /// The next connection's number.
    #[track_caller]
    pub fn accepted(&mut self, client: &TcpStream) -> SocketId {
        let address = client.local_addr().unwrap();
        self.until(|told| match told {
            Told::Accepted { socket, peer } if *peer == address => Some(*socket),
            _ => None,
        })
    }

    /// A client's connection and its number.
    #[track_caller]
    pub fn client(&mut self, address: SocketAddr) -> (TcpStream, SocketId) {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = self.accepted(&client);
        (client, socket)
    }

    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) {
        for piece in bytes.chunks(3900) {
            self.stamp += 1;
            self.say(&Message::Data { socket, stamp: self.stamp, read: 0, bytes: piece });
        }
    }

    /// Reads exactly so many bytes of a stream, and allows as many again.
    #[track_caller]
    pub fn read(&mut self, socket: SocketId, bytes: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < bytes {
            let piece = self.until(|told| match told {
                Told::Data(of, bytes) if *of == socket => Some(bytes.clone()),
                _ => None,
            });
            self.say(&Message::Credit { socket, bytes: piece.len() as u32 });
            got.extend(piece);
        }
        assert_eq!(got.len(), bytes);
        got
    }

    pub fn close(&mut self, socket: SocketId, unread: bool) {
        self.stamp += 1;
        self.say(&Message::Close { socket, stamp: self.stamp, unread });
    }

    #[track_caller]
    pub fn expect(&mut self, expected: &Told) {
        self.until(|told| (told == expected).then_some(()));
    }
}

/// Reads exactly so many bytes.
#[track_caller]
pub fn read(client: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    client.read_exact(&mut buffer).unwrap();
    buffer
}

#[track_caller]
pub fn write(client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
}

/// What a metric says now; 0 where it is not there.
pub fn metric(address: SocketAddr, series: &str) -> f64 {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// Polls until `done`.
#[track_caller]
pub fn eventually(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A free port of loopback, as good as one can know it.
pub fn free_port() -> SocketAddr {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
