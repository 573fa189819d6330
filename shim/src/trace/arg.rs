//! The arguments of a call, as a hook names them, and how each is shown.
//!
//! ```text
//! begin: read(3,                 before the call: up to the first argument that the call itself fills in
//! end:           "\20", 1)       after it: the rest
//! ```

use std::time::Duration;

use super::line::{Line, put};
use super::memory;
use super::message::{self, Shown};
use super::names::{self, Names};
use super::text::{self, choice, flags, pointer};
use super::{address, commands, options, waiting};

/// What a call returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Result {
    pub(crate) value: i64,
    /// Of a call that failed.
    pub(crate) errno: i32,
    pub(crate) elapsed: Duration,
}

impl Result {
    pub(super) fn is_failed(self) -> bool {
        self.value == -1
    }

    /// Bytes moved; none by a call that failed.
    fn moved(self) -> usize {
        usize::try_from(self.value).unwrap_or(0)
    }
}

/// An argument: a number, or an address and how to read what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    /// A descriptor.
    Fd(i32),
    /// A folder that a path starts from.
    Folder(i32),
    /// A path.
    Path(usize),
    /// A path that the call completes.
    PathOut(usize),
    /// How a file is to be open, and its permissions should it be made.
    Open(i32, u32),
    /// The same as fopen(3) takes it.
    Mode(usize),
    /// The permissions of a new file.
    Permissions(u32),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Size(usize),
    /// An address that is not followed.
    Pointer(usize),
    /// One of these constants.
    Choice(&'static Names, i32),
    /// Several of these.
    Flags(&'static Names, u32),
    /// A socket's type and its flags.
    Kind(i32),
    /// A socket's protocol, in its family.
    Protocol(i32, i32),
    /// So many bytes that go in.
    Sent(usize, usize),
    /// Room for so many bytes that come out.
    Received(usize, usize),
    /// So many vectors that go in.
    Gathered(usize, usize),
    /// So many vectors to fill.
    Scattered(usize, usize),
    /// A socket address and its length.
    Address(usize, i32),
    /// Room for one, and where its length is.
    AddressOut(usize, usize),
    /// A message that goes in.
    Message(usize),
    /// A message to fill.
    MessageOut(usize),
    /// So many messages that go in.
    Messages(usize, usize),
    /// So many messages to fill.
    MessagesOut(usize, usize),
    /// Level, name, and value of so many bytes.
    Option(i32, i32, usize, i32),
    /// Level, name, room for a value, and where its length is.
    OptionOut(i32, i32, usize, usize),
    /// Two new descriptors.
    PairOut(usize),
    /// Where a file's position is.
    Position(usize),
    /// The same, moved by the call.
    PositionMoved(usize),
    /// A command of fcntl(2) and its argument.
    Command(i32, usize),
    /// A request of ioctl(2) and its argument.
    Request(u64, usize),
    /// What epoll_ctl(2) does, and the event it takes.
    Event(i32, usize),
    /// Room for events of epoll.
    EventsOut(usize),
    /// So many descriptors of poll(2), and its time-out.
    Watched(usize, usize),
    /// The highest descriptor of select(2), and its sets.
    Sets(i32, [usize; 3]),
    /// A time-out that the call may shorten, as it went in.
    Timespec(usize),
    /// The same in microseconds, shown as select(2) hands it on.
    Timeval(usize),
    /// A signal mask of so many bytes.
    Mask(usize, usize),
    /// The same, in pselect's own wrapping.
    MaskWrapped(usize),
}

/// Names of messages whose room is remembered.
const NAMES_MAX: usize = 8;

/// What is known before a call and must not be asked after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// The argument with which the line goes on after the call.
    next: usize,
    /// The length that the call may change, if it was readable.
    length: Option<i32>,
    /// The room of each message's name.
    rooms: [i32; NAMES_MAX],
    rooms_known: usize,
    /// The time-out.
    timeout: Option<[i64; 2]>,
}

impl Before {
    fn of(args: &[Arg]) -> Before {
        let mut before = Before::default();
        for arg in args {
            before.note(arg);
        }
        before
    }

    fn note(&mut self, arg: &Arg) {
        match *arg {
            Arg::AddressOut(address, length) if address != 0 => {
                self.length = memory::load::<i32>(length);
            }
            Arg::OptionOut(.., length) => self.length = memory::load::<i32>(length),
            Arg::MessageOut(address) => self.length = message::name_length(address),
            Arg::MessagesOut(address, count) => {
                let known = (0..count.min(NAMES_MAX)).map_while(|at| {
                    message::name_length(address + at * size_of::<libc::mmsghdr>())
                });
                for (room, length) in self.rooms.iter_mut().zip(known) {
                    *room = length;
                    self.rooms_known += 1;
                }
            }
            Arg::Timespec(address) => self.timeout = memory::load::<[i64; 2]>(address),
            Arg::Timeval(address) => {
                self.timeout = memory::load::<[i64; 2]>(address)
                    .map(|[seconds, micros]| [seconds, micros.saturating_mul(1000)]);
            }
            _ => {}
        }
    }

    /// What is left of the time-out after the call.
    fn left(&self, result: Result) -> Option<[i64; 2]> {
        let [seconds, nanos] = self.timeout?;
        let whole = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        let left = whole.saturating_sub(result.elapsed);
        Some([left.as_secs().cast_signed(), i64::from(left.subsec_nanos())])
    }
}

/// Writes what is known of the arguments before the call.
pub(super) fn begin(line: &mut Line, args: &[Arg]) -> Before {
    let mut before = Before::of(args);
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            line.push(", ");
        }
        before.next = at;
        if !arg.begin(line, &before) {
            return before;
        }
    }
    before.next = args.len();
    before
}

/// Writes the other arguments, after the call.
pub(super) fn end(line: &mut Line, args: &[Arg], before: &Before, result: Result) {
    for (at, arg) in args.iter().enumerate().skip(before.next) {
        let mut is_whole = false;
        if at > before.next {
            line.push(", ");
            is_whole = arg.begin(line, before);
        }
        if !is_whole {
            arg.end(line, before, result);
        }
    }
}

/// Writes the result with what it means.
pub(super) fn result(line: &mut Line, args: &[Arg], before: &Before, result: Result) {
    let is_said = args.iter().any(|arg| match *arg {
        Arg::Command(command, _) => commands::fcntl_result(line, command, result),
        _ => false,
    });
    if is_said {
        return;
    }
    put!(line, "{}", result.value);
    if result.is_failed() {
        match super::errnos::find(result.errno) {
            Some((name, words)) => put!(line, " {name} ({words})"),
            None => put!(line, " (errno {})", result.errno),
        }
        return;
    }
    for arg in args {
        arg.note(line, before, result);
    }
}

impl Arg {
    /// `false`: the rest comes after the call.
    fn begin(&self, line: &mut Line, before: &Before) -> bool {
        match *self {
            Arg::Option(level, name, address, length) => {
                options::level_and_name(line, level, name, false);
                line.push(", ");
                options::value_set(line, level, name, address, length);
            }
            Arg::OptionOut(level, name, value, length) => {
                options::level_and_name(line, level, name, true);
                line.push(", ");
                if before.length.is_some() {
                    return false;
                }
                pointers(line, value, length);
            }
            Arg::AddressOut(address, length) if before.length.is_none() => {
                pointers(line, address, length);
            }
            Arg::MessageOut(address) if before.length.is_none() => pointer(line, address),
            Arg::PositionMoved(address) => return !position(line, address),
            Arg::Command(command, argument) => {
                return commands::begin_fcntl(line, command, argument);
            }
            Arg::Request(request, argument) => {
                return commands::begin_ioctl(line, request, argument);
            }
            Arg::Timespec(address) | Arg::Timeval(address) => match before.timeout {
                Some(value) => text::time(line, value, "tv_nsec"),
                None => pointer(line, address),
            },
            Arg::PathOut(..)
            | Arg::Received(..)
            | Arg::Scattered(..)
            | Arg::AddressOut(..)
            | Arg::MessageOut(..)
            | Arg::Messages(..)
            | Arg::MessagesOut(..)
            | Arg::PairOut(..)
            | Arg::EventsOut(..) => return false,
            _ => self.input(line),
        }
        true
    }

    /// An argument that the call only reads.
    fn input(&self, line: &mut Line) {
        match *self {
            Arg::Fd(fd) => put!(line, "{fd}"),
            Arg::Folder(libc::AT_FDCWD) => line.push("AT_FDCWD"),
            Arg::Folder(fd) => put!(line, "{fd}"),
            Arg::Path(address) => text::path(line, address),
            Arg::Open(flags, mode) => open(line, flags, mode),
            Arg::Mode(address) => open(line, stream_flags(address), STREAM_PERMISSIONS),
            Arg::Permissions(mode) => permissions(line, mode),
            Arg::Int(value) => put!(line, "{value}"),
            Arg::Size(value) => put!(line, "{value}"),
            Arg::Pointer(address) => pointer(line, address),
            Arg::Choice(names, value) => choice(line, names, u64::from(value.cast_unsigned())),
            Arg::Flags(names, value) => flags(line, names, value.into()),
            Arg::Kind(kind) => socket_kind(line, kind.cast_unsigned()),
            Arg::Protocol(family, protocol) => socket_protocol(line, family, protocol),
            Arg::Sent(address, length) => text::string(line, address, length),
            Arg::Gathered(address, count) => message::vectors(line, address, count, Shown::All),
            Arg::Address(address, length) => {
                address::socket_address(line, address, length);
                put!(line, ", {length}");
            }
            Arg::Message(address) => message::message(line, address, None, Shown::All),
            Arg::Position(address) => {
                position(line, address);
            }
            Arg::Event(operation, address) => waiting::epoll_event_in(line, operation, address),
            Arg::Watched(address, count) => waiting::poll_set(line, address, count),
            Arg::Sets(count, sets) => waiting::select_sets(line, count, sets),
            Arg::Mask(address, length) => waiting::signal_mask(line, address, length),
            Arg::MaskWrapped(address) => waiting::wrapped_mask(line, address),
            _ => {}
        }
    }

    /// What the call filled in.
    fn end(&self, line: &mut Line, before: &Before, result: Result) {
        let is_failed = result.is_failed();
        match *self {
            Arg::PathOut(address) => text::path(line, address),
            Arg::Received(address, _) if is_failed => pointer(line, address),
            Arg::Received(address, room) => text::string(line, address, result.moved().min(room)),
            Arg::Scattered(address, count) => {
                let moved = Shown::Moved(result.moved());
                let shown = if is_failed { Shown::Nothing } else { moved };
                message::vectors(line, address, count, shown);
            }
            Arg::AddressOut(address, length) => {
                address_out(line, address, length, before.length.unwrap_or(0), result);
            }
            Arg::MessageOut(_) if is_failed => {
                put!(line, "{{msg_namelen={}}}", before.length.unwrap_or(0));
            }
            Arg::MessageOut(address) => {
                message::message(line, address, before.length, Shown::Moved(result.moved()));
            }
            Arg::Messages(address, count) => message::sent_messages(line, address, count, result),
            Arg::MessagesOut(address, _) => {
                message::received_messages(
                    line,
                    address,
                    &before.rooms[..before.rooms_known],
                    result,
                );
            }
            Arg::OptionOut(level, name, value, length) => {
                option_out(line, (level, name), value, length, before.length.unwrap_or(0), result);
            }
            Arg::PairOut(address) => match memory::load::<[i32; 2]>(address) {
                Some([first, second]) if !is_failed => put!(line, "[{first}, {second}]"),
                _ => pointer(line, address),
            },
            Arg::PositionMoved(address) if result.value > 0 => {
                line.push(" => ");
                position(line, address);
            }
            Arg::Command(command, argument) => commands::end_fcntl(line, command, argument, result),
            Arg::Request(_, argument) => commands::end_ioctl(line, argument, result),
            Arg::EventsOut(address) => waiting::epoll_events(line, address, result),
            _ => {}
        }
    }

    /// After the result of a call that succeeded.
    fn note(&self, line: &mut Line, before: &Before, result: Result) {
        let left = before.left(result);
        match *self {
            Arg::Watched(address, count) => waiting::poll_note(line, address, count, left, result),
            Arg::Sets(count, sets) => waiting::select_note(line, count, sets, left, result),
            Arg::MessagesOut(..) if result.value == 0 => line.push(" (Timeout)"),
            Arg::MessagesOut(..) => {
                if let Some(left) = left {
                    line.push(" (left ");
                    text::time(line, left, "tv_nsec");
                    line.push(")");
                }
            }
            _ => {}
        }
    }
}

fn pointers(line: &mut Line, first: usize, second: usize) {
    pointer(line, first);
    line.push(", ");
    pointer(line, second);
}

fn socket_kind(line: &mut Line, kind: u32) {
    let (own, others) = (u64::from(kind & 0xf), u64::from(kind & !0xf));
    match names::KIND.find(own) {
        Some(name) if others == 0 => line.push(name),
        Some(name) => {
            line.push(name);
            line.push("|");
            flags(line, names::KIND_FLAGS, others);
        }
        None => flags(line, names::KIND_FLAGS, kind.into()),
    }
}

fn socket_protocol(line: &mut Line, family: i32, protocol: i32) {
    let number = u64::from(protocol.cast_unsigned());
    match family {
        libc::AF_INET | libc::AF_INET6 => choice(line, names::PROTOCOL, number),
        libc::AF_NETLINK => choice(line, names::NETLINK, number),
        _ => put!(line, "{number}"),
    }
}

/// What fopen(3) makes files with.
const STREAM_PERMISSIONS: u32 = 0o666;

/// The flags open(2) gets for a mode of fopen(3).
fn stream_flags(mode: usize) -> i32 {
    const LETTERS_MAX: usize = 7;
    let mut letters = [0_u8; LETTERS_MAX];
    let known = (0..LETTERS_MAX).take_while(|&at| {
        memory::read(mode.saturating_add(at), &mut letters[at..=at])
            && !matches!(letters[at], 0 | b',')
    });
    let count = known.count();
    let letters = &letters[..count];
    let has = |letter: u8| letters.get(1..).is_some_and(|rest| rest.contains(&letter));
    let (own, made) = match letters.first() {
        Some(b'w') => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        Some(b'a') => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => (libc::O_RDONLY, 0),
    };
    let own = if has(b'+') { libc::O_RDWR } else { own };
    let exclusive = if has(b'x') { libc::O_EXCL } else { 0 };
    own | made | exclusive | if has(b'e') { libc::O_CLOEXEC } else { 0 }
}

/// The flags, and the permissions where a file may be made.
fn open(line: &mut Line, flags: i32, mode: u32) {
    commands::open_modes(line, u64::from(flags.cast_unsigned()));
    let temporary = libc::O_TMPFILE & !libc::O_DIRECTORY;
    if flags & (libc::O_CREAT | temporary) != 0 {
        line.push(", ");
        permissions(line, mode);
    }
}

fn permissions(line: &mut Line, mode: u32) {
    put!(line, "0{:02o}", mode & 0o177_777);
}

/// The file position at `address`. `false` if there is none.
fn position(line: &mut Line, address: usize) -> bool {
    match memory::load::<i64>(address) {
        Some(at) => {
            put!(line, "[{at}]");
            true
        }
        None => {
            pointer(line, address);
            false
        }
    }
}

fn address_out(line: &mut Line, address: usize, length: usize, before: i32, result: Result) {
    match memory::load::<i32>(length) {
        Some(after) if !result.is_failed() => {
            address::socket_address(line, address, before.min(after));
            line.push(", ");
            address::lengths(line, before, after);
        }
        _ => {
            pointer(line, address);
            put!(line, ", [{before}]");
        }
    }
}

fn option_out(
    line: &mut Line,
    (level, name): (i32, i32),
    value: usize,
    length: usize,
    before: i32,
    result: Result,
) {
    match memory::load::<i32>(length) {
        Some(after) if !result.is_failed() => {
            options::value_got(line, level, name, value, [before, after]);
        }
        _ => {
            pointer(line, value);
            put!(line, ", [{before}]");
        }
    }
}
