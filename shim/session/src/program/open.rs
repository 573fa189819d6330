//! Opening a session: connect, check who is there, exchange Hello, map the memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqttshim_schema::{Hello, Message, VERSION_MAX, VERSION_MIN};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::frame::{self, FRAME_BYTES_MAX, FrameFds, Received};
use crate::layout::{LAYOUT_MAX, LAYOUT_MIN, RX_BYTES};
use crate::memory::{Memory, MemoryError};
use crate::program::control::{NEW_SOCKET, UNSPECIFIED};
use crate::program::{Bell, Session};

/// How long an agent may take to answer before the program goes on without it.
const ANSWER_SECONDS_MAX: u64 = 5;

/// Why there is no session. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody serves this path.
    #[error(
        "no dpu-server answers at {} ({errno}); start one with `dpu-server run`, or name its session path in MQTTSHIM_SESSION",
        path.display()
    )]
    Absent {
        /// What was tried.
        path: PathBuf,
        /// What connect(2) said.
        errno: Errno,
    },
    /// The path is there, and closed to this user.
    #[error(
        "uid {uid} may not use the session at {} (owned by uid {owner}, group {group}, mode {mode:04o}); add the user to group {group}, or start dpu-server without --session-group",
        path.display()
    )]
    Denied {
        /// What was tried.
        path: PathBuf,
        /// This process's user.
        uid: u32,
        /// The socket file's owner.
        owner: u32,
        /// The socket file's group.
        group: u32,
        /// The socket file's mode.
        mode: u32,
    },
    /// Somebody serves the path who is neither root nor this user.
    #[error(
        "the session at {} is served by uid {owner}, which is neither root nor uid {uid}; run dpu-server as one of them",
        path.display()
    )]
    Owner {
        /// What was tried.
        path: PathBuf,
        /// Who serves it.
        owner: u32,
        /// This process's user.
        uid: u32,
    },
    /// The agent said no.
    #[error("the dpu-server at {} refused the session: {reason}", path.display())]
    Refused {
        /// What was tried.
        path: PathBuf,
        /// The agent's words.
        reason: String,
    },
    /// The agent's answer is not one this build understands.
    #[error(
        "the dpu-server at {} answered in a way this library does not understand ({what}); install the library and dpu-server from the same release",
        path.display()
    )]
    Answer {
        /// What was tried.
        path: PathBuf,
        /// What was wrong.
        what: String,
    },
    /// The memory it handed over cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// This process could not make what it needs.
    #[error("{step}: {errno}")]
    System {
        /// The call that failed.
        step: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

impl OpenError {
    /// Whether there is simply nobody at this path, so that the next one may be tried.
    pub fn is_absent(&self) -> bool {
        matches!(self, OpenError::Absent { .. })
    }
}

fn system(step: &'static str) -> impl Fn(Errno) -> OpenError {
    move |errno| OpenError::System { step, errno }
}

impl Session {
    /// Opens a session at `path` for `program`. The descriptors it keeps, four at most, are numbered from `fd_floor` up, or as high as the
    /// process's limit allows.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub fn open(path: &Path, program: &str, fd_floor: RawFd) -> Result<Session, OpenError> {
        Session::open_with(path, program, fd_floor, &[])
    }

    /// The same, for a program whose listener may be served by another process that holds the same `placeholder`: then that
    /// one's session is opened once more.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn join(
        path: &Path,
        program: &str,
        fd_floor: RawFd,
        placeholder: BorrowedFd<'_>,
    ) -> Result<Session, OpenError> {
        Session::open_with(path, program, fd_floor, &[placeholder])
    }

    fn open_with(
        path: &Path,
        program: &str,
        fd_floor: RawFd,
        placeholder: &[BorrowedFd<'_>],
    ) -> Result<Session, OpenError> {
        let control = connect(path)?;
        say(&control, path, &hello(program), placeholder)?;
        let fds = take_answer(&control, path)?;
        Session::map(control, fds, path, fd_floor)
    }

    /// The session of a socket that another program opened, and whose `placeholder` this one inherited or received. `None`:
    /// the agent knows no such socket.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn claim(
        path: &Path,
        fd_floor: RawFd,
        placeholder: BorrowedFd<'_>,
    ) -> Result<Option<Session>, OpenError> {
        let control = connect(path)?;
        say(&control, path, &CLAIM, &[placeholder])?;
        let [memory, doorbell, ..] = match take_answer(&control, path) {
            Ok(fds) => fds,
            Err(OpenError::Refused { reason, .. }) if reason.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        };
        // The bell is for the one process that takes the ready list.
        Session::map(control, [memory, doorbell, None, None], path, fd_floor).map(Some)
    }

    fn map(
        control: OwnedFd,
        [memory, doorbell, hears, rings]: FrameFds,
        path: &Path,
        fd_floor: RawFd,
    ) -> Result<Session, OpenError> {
        let (Some(memory), Some(doorbell)) = (memory, doorbell) else {
            let what = "its Hello came without memory and doorbell".into();
            return Err(OpenError::Answer { path: path.into(), what });
        };
        let memory = Memory::open(memory.as_fd())?;
        let bell = match hears.zip(rings) {
            Some((hears, rings)) => {
                Some(Bell { hears: lift(hears, fd_floor)?, rings: lift(rings, fd_floor)? })
            }
            None => None,
        };
        Ok(Session {
            memory,
            control: lift(control, fd_floor)?,
            doorbell: lift(doorbell, fd_floor)?,
            bell,
        })
    }
}

/// What a program that has a placeholder and no session says instead of Hello, with the placeholder. Answered by the Hello of
/// the session it belongs to, or by a Reply with the reason why not, which is empty if it belongs to none.
pub const CLAIM: Message<'static> = Message::Accepted {
    listener: NEW_SOCKET,
    socket: NEW_SOCKET,
    local: UNSPECIFIED,
    peer: UNSPECIFIED,
};

fn connect(path: &Path) -> Result<OwnedFd, OpenError> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(system("a socket for the session"))?;
    let timeout = Some(Duration::from_secs(ANSWER_SECONDS_MAX));
    for which in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&socket, which, timeout).map_err(system("a time-out"))?;
    }
    let address = SocketAddrUnix::new(path).map_err(system("the session path is too long"))?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
        Ok(()) => {}
        Err(Errno::ACCESS | Errno::PERM) => return Err(denied(path)),
        Err(errno) => return Err(OpenError::Absent { path: path.into(), errno }),
    }
    let owner = sockopt::socket_peercred(&socket).map_err(system("SO_PEERCRED"))?.uid.as_raw();
    let uid = rustix::process::geteuid().as_raw();
    if owner != 0 && owner != uid {
        return Err(OpenError::Owner { path: path.into(), owner, uid });
    }
    Ok(socket)
}

fn denied(path: &Path) -> OpenError {
    let uid = rustix::process::geteuid().as_raw();
    match rustix::fs::stat(path) {
        Ok(stat) => OpenError::Denied {
            path: path.into(),
            uid,
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o7777,
        },
        Err(errno) => OpenError::Absent { path: path.into(), errno },
    }
}

fn hello(program: &str) -> Message<'_> {
    Message::Hello(Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        max_message_bytes: FRAME_BYTES_MAX as u32,
        window_bytes: RX_BYTES as u32,
        layout_min: LAYOUT_MIN,
        layout_max: LAYOUT_MAX,
        program,
    })
}

fn say(
    control: &OwnedFd,
    path: &Path,
    message: &Message<'_>,
    placeholder: &[BorrowedFd<'_>],
) -> Result<(), OpenError> {
    let mut bytes = Vec::new();
    mqttshim_schema::encode(message, &mut bytes)
        .map_err(|error| OpenError::Answer { path: path.into(), what: error.to_string() })?;
    match frame::send(control, &bytes, placeholder, SendFlags::empty()) {
        // An agent that refuses does not wait for this; its reason may be there all the same.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(OpenError::Absent { path: path.into(), errno }),
    }
}

/// The agent's Hello comes with the memory, the doorbell, and from layout 2 on the bell; a Reply instead says why not.
fn take_answer(control: &OwnedFd, path: &Path) -> Result<FrameFds, OpenError> {
    let unclear = |what: String| OpenError::Answer { path: path.into(), what };
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut received = frame::receive(control, &mut buffer, RecvFlags::empty());
    if let Err(Errno::CONNRESET) = received {
        // The agent closed before it took our Hello. Linux says so once, ahead of what the agent had sent.
        received = frame::receive(control, &mut buffer, RecvFlags::empty());
    }
    let Received { length, fds, .. } =
        received.map_err(|errno| OpenError::Absent { path: path.into(), errno })?;
    if length == 0 {
        return Err(OpenError::Absent { path: path.into(), errno: Errno::CONNRESET });
    }
    match mqttshim_schema::decode(&buffer[..length]) {
        Ok(Message::Hello(_)) => Ok(fds),
        Ok(Message::Reply { value, .. }) => Err(OpenError::Refused {
            path: path.into(),
            reason: String::from_utf8_lossy(value).into_owned(),
        }),
        Ok(_) => Err(unclear("not a Hello".into())),
        Err(error) => Err(unclear(error.to_string())),
    }
}

/// Moves a descriptor out of the way of programs that count on small numbers.
fn lift(fd: OwnedFd, floor: RawFd) -> Result<OwnedFd, OpenError> {
    for floor in [floor, 3] {
        match rustix::io::fcntl_dupfd_cloexec(&fd, floor) {
            Ok(lifted) => return Ok(lifted),
            Err(Errno::INVAL | Errno::MFILE) => {}
            Err(errno) => return Err(system("F_DUPFD_CLOEXEC")(errno)),
        }
    }
    Err(system("F_DUPFD_CLOEXEC")(Errno::MFILE))
}
