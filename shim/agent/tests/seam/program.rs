//! A program as the preloaded library makes it: placeholders, wires, closes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttshim_session::{Accept, Read, Session, SlotId, Write};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

/// Longest wait for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Waits, looking now and then, until `is_so`.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What poll(2) says at once.
pub(crate) fn ready(fd: impl AsFd) -> PollFlags {
    wait(fd, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP, Duration::ZERO)
}

/// What poll(2) says in time.
pub(crate) fn wait(fd: impl AsFd, for_what: PollFlags, time: Duration) -> PollFlags {
    let mut fds = [PollFd::new(&fd, for_what)];
    let time = Timespec::try_from(time).expect("a short time");
    rustix::event::poll(&mut fds, Some(&time)).expect("poll");
    fds[0].revents()
}

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) session: Arc<Session>,
}

pub(crate) struct Listener {
    pub(crate) session: Arc<Session>,
    pub(crate) slot: SlotId,
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) name: String,
}

pub(crate) struct Connection {
    pub(crate) session: Arc<Session>,
    pub(crate) slot: SlotId,
    /// The placeholder; `None` once closed.
    pub(crate) fd: Option<OwnedFd>,
}

/// The two ends of a placeholder, `fillers` bytes on the wire.
pub(crate) fn placeholder(fillers: usize) -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::STREAM;
    let (fd, wire) =
        rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
    sockopt::set_socket_send_buffer_size(&fd, 0).expect("the smallest buffer");
    for _ in 0..fillers {
        rustix::net::send(&fd, &[0], SendFlags::DONTWAIT).expect("room for a filler");
    }
    (fd, wire)
}

impl Program {
    pub(crate) fn open(path: &Path) -> Program {
        let session = Session::open(path, "test program", 3).expect("a session");
        Program { session: Arc::new(session) }
    }

    pub(crate) fn listen(&self, port: u16) -> Result<Listener, Errno> {
        let (slot, _) = self.session.bind(([127, 0, 0, 1], port).into(), &[])?;
        let listening = self.session.listen(slot, 100, None, &[])?;
        let (session, fd) = (Arc::clone(&self.session), listening.placeholder);
        Ok(Listener { session, slot, fd, name: listening.name })
    }

    /// Connects; the outcome is still out.
    pub(crate) fn connect(&self) -> Connection {
        let (fd, wire) = placeholder(2);
        let address = ([192, 0, 2, 9], 1883).into();
        let slot = self.session.connect(None, address, &[], wire).expect("a connect under way");
        Connection { session: Arc::clone(&self.session), slot, fd: Some(fd) }
    }
}

impl Listener {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("an open listener").as_fd()
    }

    /// Takes a connection off the queue, its wire not yet handed over.
    pub(crate) fn take(&self) -> Option<SlotId> {
        match self.session.accept(self.slot, self.fd()) {
            Accept::Connection(slot) => Some(slot),
            Accept::Empty => None,
            Accept::Lost => panic!("the session is gone"),
        }
    }

    #[track_caller]
    pub(crate) fn accept(&self) -> Connection {
        loop {
            if let Some(slot) = self.take() {
                return Connection::attach(&self.session, slot);
            }
            let ready = wait(self.fd(), PollFlags::IN, PATIENCE);
            assert!(ready.contains(PollFlags::IN), "no connection came");
        }
    }

    pub(crate) fn close(&mut self) {
        if self.fd.take().is_some() {
            self.session.close(self.slot);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection {
    /// Gives the connection its placeholder and the agent its wire.
    pub(crate) fn attach(session: &Arc<Session>, slot: SlotId) -> Connection {
        let (fd, wire) = placeholder(1);
        session.attach(slot, wire).expect("the session lives");
        Connection { session: Arc::clone(session), slot, fd: Some(fd) }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("an open connection").as_fd()
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> Read {
        self.session.read(self.slot, self.fd(), &mut [IoSliceMut::new(into)], false)
    }

    pub(crate) fn write(&self, from: &[u8]) -> Write {
        self.session.write(self.slot, self.fd(), &[IoSlice::new(from)])
    }

    pub(crate) fn ready(&self) -> PollFlags {
        ready(self.fd())
    }

    #[track_caller]
    pub(crate) fn becomes(&self, flags: PollFlags) {
        let deadline = Instant::now() + PATIENCE;
        while self.ready() != flags {
            assert!(Instant::now() < deadline, "{:?}, never {flags:?}", self.ready());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads until there is nothing, as a program does that was told of something. Whoever reads without being told may take
    /// bytes before the wake-up that was sent for them arrives: that one is for nothing, and goes with the next read.
    #[track_caller]
    pub(crate) fn falls_silent(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert_eq!(self.read(&mut [0; 1]), Read::Empty);
            if self.ready() == PollFlags::OUT {
                return;
            }
            assert!(Instant::now() < deadline, "{:?} for nothing", self.ready());
        }
    }

    /// Reads this many bytes, waiting as a blocking read does.
    #[track_caller]
    pub(crate) fn read_exactly(&self, count: usize) -> Vec<u8> {
        let mut all = vec![0; count];
        let mut there = 0;
        while there < count {
            match self.read(&mut all[there..]) {
                Read::Bytes(taken) => there += taken,
                Read::Empty => {
                    let ready = wait(self.fd(), PollFlags::IN, PATIENCE);
                    assert!(!ready.is_empty(), "stalled after {there} of {count} bytes");
                }
                other => panic!("{other:?} after {there} of {count} bytes"),
            }
        }
        all
    }

    /// Writes all of it, waiting as a blocking write does.
    #[track_caller]
    pub(crate) fn write_all(&self, mut from: &[u8]) {
        while !from.is_empty() {
            match self.write(from) {
                Write::Bytes(taken) => from = &from[taken..],
                Write::Full => {
                    let ready = wait(self.fd(), PollFlags::OUT, PATIENCE);
                    assert!(!ready.is_empty(), "stalled with {} bytes left", from.len());
                }
                Write::Failed(errno) => panic!("{errno} with {} bytes left", from.len()),
            }
        }
    }

    pub(crate) fn close(&mut self) {
        if self.fd.take().is_some() {
            self.session.close(self.slot);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
