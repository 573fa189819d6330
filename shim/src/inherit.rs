//! Descriptors that came from another program: left open by exec, or received as SCM_RIGHTS.
//!
//! ```text
//! descriptor, unknown here ── AF_UNIX, like a placeholder? ──► its inode in a session we have? ──► entry
//!                                                                └ no: ask the agent, the descriptor as proof ──► session, entry
//! ```
//!
//! A placeholder looks like nothing else: a stream with the smallest send buffer and a filler on its way, or a datagram socket
//! named by an agent. The sessions' memory knows the inode of each socket's placeholder. Whoever holds the descriptor and has
//! the uid of the session's owner may join it; it is no more than a forked child has. A placeholder whose session may not be
//! joined reports ECONNRESET, aloud, instead of showing the agent's wake-ups for data.

use std::os::fd::RawFd;

use mqttshim_session::{Session, SlotId, State as SocketState};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::descriptor;
use crate::descriptors;
use crate::epoll;
use crate::log::say;
use crate::options::OptionList;
use crate::sessions;
use crate::state::{self, Record};
use crate::table::{self, Entry, Flag, Kind, Socket};

/// Less than any program that does not ask for less gets, and more than the kernel's smallest on every architecture.
const SEND_BUFFER_USUAL: usize = 16384;
/// An agent's names for the placeholders of listeners begin so.
const LISTENER_PREFIX: &str = "listener-";
/// Backlog of a listener that has to be made again and whose own is not known.
const BACKLOG: i32 = 128;
/// Descriptors looked at when a program begins.
const DESCRIPTORS_MAX: usize = 4096;

/// Looks at what the program was born with. Called by the constructor.
pub(crate) fn look_around() {
    let Ok(folder) = rustix::fs::open(
        "/proc/self/fd",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return;
    };
    let mut space = [std::mem::MaybeUninit::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(&folder, &mut space);
    let mut looked_at = 0;
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        if let Some(fd) = number {
            claim(fd);
        }
        looked_at += 1;
        if looked_at > DESCRIPTORS_MAX {
            break;
        }
    }
}

/// Makes `fd` ours if it is a placeholder. Nothing happens to any other file.
pub(crate) fn claim(fd: RawFd) {
    if !table::get(fd).is_plain() || !table::has_room_for(fd) {
        return;
    }
    let Some(name) = placeholder_name(fd) else { return };
    let inode = descriptor::inode(fd);
    match sessions::owner_of(inode) {
        Some((number, session, slot)) => adopt(fd, number, session, slot, name),
        None => ask(fd, inode, name),
    }
}

/// `None`: not a placeholder. A listener's has a name; a connection's is empty.
fn placeholder_name(fd: RawFd) -> Option<String> {
    let file = descriptor::borrow(fd);
    if sockopt::socket_domain(file).ok()? != AddressFamily::UNIX {
        return None;
    }
    match sockopt::socket_type(file).ok()? {
        SocketType::STREAM => {
            let size = sockopt::socket_send_buffer_size(file).ok()?;
            (size < SEND_BUFFER_USUAL && size == smallest_send_buffer()? && is_unnamed(fd))
                .then(String::new)
        }
        SocketType::DGRAM => {
            let own: SocketAddrUnix = rustix::net::getsockname(file).ok()?.try_into().ok()?;
            let path = own.path()?.to_str().ok()?.to_owned();
            let name = path.rsplit('/').next()?;
            name.starts_with(LISTENER_PREFIX).then(|| name.to_owned())
        }
        _ => None,
    }
}

/// What the kernel makes of a placeholder's send buffer.
fn smallest_send_buffer() -> Option<usize> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .ok()?;
    sockopt::set_socket_send_buffer_size(&socket, 0).ok()?;
    sockopt::socket_send_buffer_size(&socket).ok()
}

/// A named socket is one end of nothing of ours.
fn is_unnamed(fd: RawFd) -> bool {
    let own = rustix::net::getsockname(descriptor::borrow(fd));
    own.is_ok_and(|own| own.addr_len() as usize == size_of::<libc::sa_family_t>())
}

fn ask(fd: RawFd, inode: u32, name: String) {
    let claimed = {
        let mut state = state::lock();
        // Another thread may have been faster.
        match sessions::owner_of(inode) {
            Some((number, session, _)) => Ok(Some((number, session))),
            None => sessions::claim(&mut state, descriptor::borrow(fd)),
        }
    };
    match claimed {
        Ok(Some((number, session))) => match session.find_file(inode) {
            Some(slot) => adopt(fd, number, session, slot, name),
            None => say!(Warn, "descriptor {fd} belongs to a socket that is gone"),
        },
        // Somebody else's socket pair.
        Ok(None) => {}
        Err(reason) => {
            say!(
                Error,
                "descriptor {fd} is a socket of the card that came from another program, and fails here: {reason}"
            );
            descriptors::set(fd, dead(name.is_empty()));
            table::remember_file(fd);
        }
    }
}

/// A socket of no session: everything on it fails.
fn dead(is_connection: bool) -> Entry {
    let kind = if is_connection { Kind::Connection } else { Kind::Listener };
    let slot = SlotId { index: 0, generation: 0 };
    let socket = Socket { session: sessions::NOBODYS, slot };
    Entry::offloaded(kind, socket).unwrap_or(Entry::PLAIN)
}

fn adopt(fd: RawFd, number: u8, session: &'static Session, slot: SlotId, name: String) {
    let kind = match session.state(slot) {
        SocketState::Listening => Kind::Listener,
        SocketState::Connecting | SocketState::Connected => Kind::Connection,
        SocketState::Bound | SocketState::Gone => return,
    };
    let socket = Socket { session: number, slot };
    let Some(entry) = Entry::offloaded(kind, socket) else { return };
    let local = session.local(slot);
    let is_pending = session.state(slot) == SocketState::Connecting;
    let entry = entry
        .with_if(Flag::V6, local.is_some_and(|address| address.is_ipv6()))
        .with(Flag::Shared)
        .with_if(Flag::Pending, is_pending);
    session.retain(slot);
    descriptors::set(fd, entry);
    table::remember_file(fd);
    // Whoever opened the session takes its ready list, and is told of this socket on the wire from now on, as we are.
    epoll::passed_on(fd);
    sessions::share();
    if let (Kind::Listener, Some(address)) = (kind, local) {
        let mut state = state::lock();
        if state.record(socket).is_none() {
            state.records.push(Record {
                socket,
                address,
                is_port_named: true,
                bind_options: OptionList::default(),
                listen_options: OptionList::default(),
                backlog: BACKLOG,
                placeholder: name,
            });
        }
    }
    say!(Debug, "descriptor {fd} came from another program");
}
