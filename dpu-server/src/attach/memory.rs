//! A scripted broker, for tests and simulation.
//!
//! ```text
//! Script::write, close, … ──► [ inputs ] ──recv, interpret──► card ──► [ Seen: what the broker would read ]
//! ```
//!
//! Nothing is checked here: a script says what a well-behaved host sends. Towards the broker each connection takes
//! [`Script::set_window`] bytes until the script reads them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use mqttshim_schema::{How, RequestId, SessionId};
use rustix::io::Errno;

use super::{Answer, Attach, Input, Token};
use crate::stack::{Ends, Key};

/// What the broker got of one connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// Bytes not yet read by the script.
    pub bytes: Vec<u8>,
    /// The client's FIN came.
    pub eof: bool,
    /// The connection is gone, and why.
    pub reset: Option<Errno>,
    /// Credit that came back for what the broker wrote.
    pub credit: usize,
}

/// One step of the script. Bytes and text travel in the message buffer.
#[derive(Debug)]
enum Step {
    Opened(SessionId),
    Ended(SessionId),
    Outside(SessionId, i32, i32),
    Policy(SessionId, u64),
    Library(SessionId),
    Bind(RequestId, SessionId, Token, SocketAddr),
    Listen(RequestId, Key),
    Connect(RequestId, SessionId, Token, SocketAddr),
    Data(Key),
    Blocked(Key),
    Room(Key),
    Shutdown(Key, How),
    Close(Key, bool),
}

/// See the module.
#[derive(Debug)]
pub struct Script {
    steps: VecDeque<(Step, Vec<u8>)>,
    current: Option<Step>,
    window_bytes: usize,
    is_blocked: bool,
    requests: u32,
    seen: BTreeMap<Key, Seen>,
    keys: BTreeMap<u32, Key>,
    replies: BTreeMap<RequestId, Result<Option<SocketAddr>, Errno>>,
    accepted: Vec<(Key, Ends)>,
    connected: BTreeMap<Key, Result<Ends, Errno>>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            steps: VecDeque::new(),
            current: None,
            window_bytes: usize::MAX,
            is_blocked: false,
            requests: 0,
            seen: BTreeMap::new(),
            keys: BTreeMap::new(),
            replies: BTreeMap::new(),
            accepted: Vec::new(),
            connected: BTreeMap::new(),
        }
    }
}

impl Script {
    fn push(&mut self, step: Step, bytes: &[u8]) {
        self.steps.push_back((step, bytes.to_vec()));
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// A broker appears.
    pub fn open(&mut self, session: SessionId) {
        self.open_as(session, "script");
    }

    /// A broker of this program appears.
    pub fn open_as(&mut self, session: SessionId, program: &str) {
        self.push(Step::Opened(session), program.as_bytes());
    }

    /// A broker is gone.
    pub fn end(&mut self, session: SessionId) {
        self.push(Step::Ended(session), b"");
    }

    /// The number of its sockets outside the card changes.
    pub fn outside(&mut self, session: SessionId, listeners: i32, connections: i32, name: &str) {
        self.push(Step::Outside(session, listeners, connections), name.as_bytes());
    }

    /// It may permit something else from here on; the `epoch`th time.
    pub fn policy(&mut self, session: SessionId, epoch: u64) {
        self.push(Step::Policy(session, epoch), b"");
    }

    /// It loads a shared object.
    pub fn library(&mut self, session: SessionId, path: &str) {
        self.push(Step::Library(session), path.as_bytes());
    }

    /// It binds.
    pub fn bind(&mut self, session: SessionId, token: Token, address: SocketAddr) -> RequestId {
        let request = self.request();
        self.push(Step::Bind(request, session, token, address), b"");
        request
    }

    /// It listens.
    pub fn listen(&mut self, key: Key) -> RequestId {
        let request = self.request();
        self.push(Step::Listen(request, key), b"");
        request
    }

    /// It connects a new socket.
    pub fn connect(&mut self, session: SessionId, token: Token, to: SocketAddr) -> RequestId {
        let request = self.request();
        self.push(Step::Connect(request, session, token, to), b"");
        request
    }

    /// It writes.
    pub fn write(&mut self, key: Key, bytes: &[u8]) {
        self.push(Step::Data(key), bytes);
    }

    /// It was told that a write would block.
    pub fn blocked(&mut self, key: Key) {
        self.push(Step::Blocked(key), b"");
    }

    /// It ends one half.
    pub fn shutdown(&mut self, key: Key, how: How) {
        self.push(Step::Shutdown(key, how), b"");
    }

    /// It closes its last descriptor.
    pub fn close(&mut self, key: Key, unread: bool) {
        self.push(Step::Close(key, unread), b"");
    }

    /// It reads all it was handed, which makes room.
    pub fn read(&mut self, key: Key) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.seen.entry(key).or_default().bytes);
        self.push(Step::Room(key), b"");
        bytes
    }

    /// Bounds what each connection takes before the script reads.
    pub fn set_window(&mut self, bytes: usize) {
        self.window_bytes = bytes;
    }

    /// Makes the way to the host full, or not.
    pub fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// What came of one connection.
    #[must_use]
    pub fn seen(&self, key: Key) -> Seen {
        self.seen.get(&key).cloned().unwrap_or_default()
    }

    /// The key of a socket the script named.
    #[must_use]
    pub fn key(&self, token: Token) -> Option<Key> {
        self.keys.get(&token.0).copied()
    }

    /// The answer to a request.
    #[must_use]
    pub fn answer(&self, request: RequestId) -> Option<Result<Option<SocketAddr>, Errno>> {
        self.replies.get(&request).copied()
    }

    /// Connections announced so far, in order.
    #[must_use]
    pub fn accepted(&self) -> &[(Key, Ends)] {
        &self.accepted
    }

    /// The outcome of a connect.
    #[must_use]
    pub fn outcome(&self, key: Key) -> Option<Result<Ends, Errno>> {
        self.connected.get(&key).copied()
    }
}

impl Attach for Script {
    fn recv(&mut self, _now: Instant, buffer: &mut Vec<u8>) -> bool {
        let Some((step, bytes)) = self.steps.pop_front() else { return false };
        self.current = Some(step);
        *buffer = bytes;
        true
    }

    fn interpret<'b>(&mut self, message: &'b [u8]) -> Option<Input<'b>> {
        Some(match self.current.take()? {
            Step::Opened(session) => {
                let program = std::str::from_utf8(message).unwrap_or_default();
                Input::SessionOpened { session, program }
            }
            Step::Ended(session) => Input::SessionEnded { session },
            Step::Outside(session, listeners, connections) => {
                let name = std::str::from_utf8(message).unwrap_or_default();
                Input::Outside { session, listeners, connections, name }
            }
            Step::Policy(session, epoch) => Input::PolicyEpoch { session, epoch },
            Step::Library(session) => {
                let path = std::str::from_utf8(message).unwrap_or_default();
                Input::LibraryLoaded { session, path }
            }
            Step::Bind(request, session, token, address) => {
                Input::Bind { request, session, token, uid: 0, address, options: Vec::new() }
            }
            Step::Listen(request, key) => {
                Input::Listen { request, key, backlog: 100, options: Vec::new() }
            }
            Step::Connect(request, session, token, address) => {
                let (key, options) = (None, Vec::new());
                Input::Connect { request, session, token, key, uid: 0, address, options }
            }
            Step::Data(key) => Input::Data { key, bytes: message },
            Step::Blocked(key) => Input::Blocked { key },
            Step::Room(key) => Input::Room { key },
            Step::Shutdown(key, how) => Input::Shutdown { key, how },
            Step::Close(key, unread) => Input::Close { key, unread },
        })
    }

    fn poll_lost(&mut self) -> Option<SessionId> {
        None
    }

    fn opened(&mut self, _session: SessionId, token: Token, key: Key) {
        self.keys.insert(token.0, key);
    }

    fn connecting(&mut self, _key: Key) {}

    fn reply(&mut self, request: RequestId, answer: Result<Answer<'_>, Errno>) {
        let address = answer.map(|answer| match answer {
            Answer::Address(address) => Some(address),
            Answer::Done | Answer::Value(_) => None,
        });
        self.replies.insert(request, address);
    }

    fn accepted(&mut self, _listener: Key, key: Key, ends: Ends) {
        self.seen.insert(key, Seen::default());
        self.accepted.push((key, ends));
    }

    fn connected(&mut self, key: Key, outcome: Result<Ends, Errno>) {
        self.connected.insert(key, outcome);
    }

    fn data(&mut self, key: Key, bytes: &[u8]) -> usize {
        if self.is_blocked {
            return 0;
        }
        let seen = self.seen.entry(key).or_default();
        let room = self.window_bytes.saturating_sub(seen.bytes.len());
        let taken = room.min(bytes.len());
        seen.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    fn eof(&mut self, key: Key) {
        self.seen.entry(key).or_default().eof = true;
    }

    fn reset(&mut self, key: Key, errno: Errno) {
        self.seen.entry(key).or_default().reset = Some(errno);
    }

    fn drained(&mut self, key: Key, bytes: usize) {
        self.seen.entry(key).or_default().credit += bytes;
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn flush(&mut self, _now: Instant) -> bool {
        false
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
