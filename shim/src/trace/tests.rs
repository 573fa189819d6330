//! Whole calls, against what strace 6.1 wrote of the same.

use std::cell::Cell;
use std::time::Duration;

use super::arg::{self, Arg, Result};
use super::line::Line;
use super::names;
use Arg::*;

/// The arguments and the result of a call that is made between the two.
#[track_caller]
fn assert_call(expected: &str, args: &[Arg], value: i64, errno: i32, call: impl FnOnce()) {
    let mut line = Box::new(Line::new());
    let before = arg::begin(&mut line, args);
    call();
    let result = Result { value, errno, elapsed: Duration::from_secs(1) };
    arg::end(&mut line, args, &before, result);
    line.push(") = ");
    arg::result(&mut line, args, &before, result);
    assert_eq!(String::from_utf8_lossy(line.as_bytes()), expected);
}

fn at<T>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

#[test]
fn options_are_shown_by_their_kind() {
    let (one, linger) = (1_i32, [1_i32, 3]);
    let set = |level, name, address, length| [Fd(4), Option(level, name, address, length)];
    let (socket, error) = (libc::SOL_SOCKET, libc::ENOPROTOOPT);
    assert_call(
        "4, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0",
        &set(socket, libc::SO_REUSEADDR, at(&one), 4),
        0,
        0,
        || {},
    );
    assert_call(
        "4, SOL_SOCKET, SO_LINGER, {l_onoff=1, l_linger=3}, 8) = 0",
        &set(socket, libc::SO_LINGER, at(&linger), 8),
        0,
        0,
        || {},
    );
    assert_call(
        "4, SOL_TCP, 0x3e7 /* TCP_??? */, [1], 4) = -1 ENOPROTOOPT (Protocol not available)",
        &set(libc::SOL_TCP, 999, at(&one), 4),
        -1,
        error,
        || {},
    );
    assert_call(
        "4, 0x3e7 /* SOL_?? */, 7, [1], 4) = -1 ENOPROTOOPT (Protocol not available)",
        &set(999, 7, at(&one), 4),
        -1,
        error,
        || {},
    );
    let (refused, length) = (libc::ECONNREFUSED, 4_i32);
    assert_call(
        "4, SOL_SOCKET, SO_ERROR, [ECONNREFUSED], [4]) = 0",
        &[Fd(4), OptionOut(socket, libc::SO_ERROR, at(&refused), at(&length))],
        0,
        0,
        || {},
    );
    assert_call(
        "4, SOL_SOCKET, SO_TYPE, 0x8, NULL) = -1 EFAULT (Bad address)",
        &[Fd(4), OptionOut(socket, libc::SO_TYPE, 8, 0)],
        -1,
        libc::EFAULT,
        || {},
    );
}

#[test]
fn commands_are_shown_with_their_argument_and_what_they_return() {
    let command = |command, argument| [Fd(5), Command(command, argument)];
    assert_call(
        "5, F_GETFL) = 0x802 (flags O_RDWR|O_NONBLOCK)",
        &command(libc::F_GETFL, 0),
        0x802,
        0,
        || {},
    );
    assert_call("5, F_GETFD) = 0x1 (flags FD_CLOEXEC)", &command(libc::F_GETFD, 0), 1, 0, || {});
    assert_call("5, F_GETFD) = 0", &command(libc::F_GETFD, 0), 0, 0, || {});
    assert_call("5, F_SETFL, O_RDWR|O_NONBLOCK) = 0", &command(libc::F_SETFL, 0x802), 0, 0, || {});
    assert_call("5, F_DUPFD_CLOEXEC, 10) = 11", &command(libc::F_DUPFD_CLOEXEC, 10), 11, 0, || {});
    assert_call(
        "5, F_GETOWN_EX, {type=F_OWNER_TID, pid=0}) = 0",
        &command(libc::F_GETOWN, 0),
        0,
        0,
        || {},
    );
    assert_call(
        "5, 0x1092 /* F_??? */, 0x7) = -1 EINVAL (Invalid argument)",
        &command(4242, 7),
        -1,
        libc::EINVAL,
        || {},
    );
    let on = 1_i32;
    assert_call("5, FIONBIO, [1]) = 0", &[Fd(5), Request(libc::FIONBIO, at(&on))], 0, 0, || {});
    assert_call(
        "5, _IOC(_IOC_READ|_IOC_WRITE, 0x54, 0x77, 0x18), 0x8) = -1 ENOTTY (Inappropriate ioctl for device)",
        &[Fd(5), Request(0xc018_5477, 8)],
        -1,
        libc::ENOTTY,
        || {},
    );
}

#[test]
fn what_a_call_fills_in_is_shown_after_it() {
    let bytes = Cell::new(*b"........");
    let read = [Fd(6), Received(bytes.as_ptr().addr(), 8), Size(8)];
    let fill = || bytes.set(*b"\x20\x02\0\0....");
    assert_call(r#"6, " \2\0\0", 8) = 4"#, &read, 4, 0, fill);
    let failed = "6, 0x8, 8) = -1 EAGAIN (Resource temporarily unavailable)";
    assert_call(failed, &[Fd(6), Received(8, 8), Size(8)], -1, libc::EAGAIN, || {});
    let (room, name) = (5_i32, [2_u8, 0, 0x49, 0x8e, 0x7f]);
    assert_call(
        r#"3, {sa_family=AF_INET, sa_data="I\216\177"}, [5]) = 0"#,
        &[Fd(3), AddressOut(at(&name), at(&room))],
        0,
        0,
        || {},
    );
    assert_call("3, NULL, NULL) = 4", &[Fd(3), AddressOut(0, 0)], 4, 0, || {});
    assert_call("[3, 4]) = 0", &[PairOut(at(&[3_i32, 4]))], 0, 0, || {});
}

#[test]
fn vectors_show_what_was_moved() {
    let (first, second) = (*b"abcd", *b"efgh");
    let parts = [[first.as_ptr().addr(), 4], [second.as_ptr().addr(), 4]];
    let address = parts.as_ptr().addr();
    assert_call(
        r#"4, [{iov_base="abcd", iov_len=4}, {iov_base="ef", iov_len=4}], 2) = 6"#,
        &[Fd(4), Scattered(address, 2), Size(2)],
        6,
        0,
        || {},
    );
    assert_call(
        r#"4, [{iov_base="abcd", iov_len=4}, {iov_base="efgh", iov_len=4}], 2) = 6"#,
        &[Fd(4), Gathered(address, 2), Size(2)],
        6,
        0,
        || {},
    );
}

#[test]
fn waits_show_what_is_ready_and_what_time_is_left() {
    let watched = [
        libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: 5, events: libc::POLLIN | libc::POLLOUT, revents: libc::POLLOUT },
    ];
    let set = Watched(watched.as_ptr().addr(), 2);
    let time = [3_i64, 5];
    assert_call(
        "[{fd=-1}, {fd=5, events=POLLIN|POLLOUT}], 2, {tv_sec=3, tv_nsec=5}, NULL, 8) = 1 \
         ([{fd=5, revents=POLLOUT}], left {tv_sec=2, tv_nsec=5})",
        &[set, Size(2), Timespec(at(&time)), Mask(0, 8), Size(8)],
        1,
        0,
        || {},
    );
    assert_call("NULL, 0, 1) = 0 (Timeout)", &[Watched(0, 0), Size(0), Int(1)], 0, 0, || {});
    let (sets, mask) = ([1_u64 << 5], !(3_u64 << 31));
    assert_call(
        "6, [5], NULL, NULL, NULL, {sigmask=~[RTMIN RT_1], sigsetsize=8}) = 1 (in [5])",
        &[Sets(6, [at(&sets), 0, 0]), Timespec(0), MaskWrapped(at(&mask))],
        1,
        0,
        || {},
    );
    let event = libc::epoll_event { events: 1, u64: 0x1_0000_0007 };
    assert_call(
        "6, [{events=EPOLLIN, data={u32=7, u64=4294967303}}], 4, -1) = 1",
        &[Fd(6), EventsOut(at(&event)), Int(4), Int(-1)],
        1,
        0,
        || {},
    );
}

#[test]
fn files_are_shown_as_they_are_opened() {
    let (path, mode) = (c"/tmp/x", c"w+ex");
    let (path, mode) = (Path(path.as_ptr().addr()), Mode(mode.as_ptr().addr()));
    let here = Folder(libc::AT_FDCWD);
    assert_call(
        r#"AT_FDCWD, "/tmp/x", O_RDWR|O_CREAT|O_EXCL|O_TRUNC|O_CLOEXEC, 0666) = 3"#,
        &[here, path, mode],
        3,
        0,
        || {},
    );
    assert_call(r#"AT_FDCWD, "/tmp/x", O_RDONLY) = 3"#, &[here, path, Open(0, 0o777)], 3, 0, || {});
    let making = Open(libc::O_CREAT | libc::O_WRONLY, 0);
    assert_call(
        r#"AT_FDCWD, "/tmp/x", O_WRONLY|O_CREAT, 000) = 3"#,
        &[here, path, making],
        3,
        0,
        || {},
    );
    assert_call(
        "SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, IPPROTO_TCP, EFD_CLOEXEC) = 3",
        &[
            Kind(libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
            Protocol(libc::AF_INET, 6),
            Flags(names::EVENTFD, libc::EFD_CLOEXEC as u32),
        ],
        3,
        0,
        || {},
    );
}
