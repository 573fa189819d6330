//! Socket options: the kernel's values, lengths and errors.

use std::net::SocketAddr;

use dpu_server::stack::{End, Stack};
use mqttshim_schema::SocketOption;
use rustix::io::Errno;

use crate::world::{LISTENER, ONE, SERVED, World, connect, listen, on, pair, received};

const SOCKET: i32 = libc::SOL_SOCKET;

#[track_caller]
fn number<W: World>(world: &mut W, level: i32, name: i32) -> i32 {
    let mut value = [0; 4];
    assert_eq!(world.stack().option(SERVED, level, name, &mut value), Ok(4));
    i32::from_ne_bytes(value)
}

pub(crate) fn an_option_is_told_as_it_was_set<W: World>(world: &mut W) {
    pair(world);
    for (level, name, set) in [
        (SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 0),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 5000),
        (libc::IPPROTO_IP, libc::IP_TOS, 0x10),
    ] {
        world.stack().set_option(SERVED, level, name, &i32::to_ne_bytes(set)).unwrap();
        assert_eq!(number(world, level, name), set, "{level}/{name}");
    }
}

pub(crate) fn values_and_errors_are_the_kernels<W: World>(world: &mut W) {
    pair(world);
    // socket(7): the kernel doubles what was asked for.
    let asked = 8192i32.to_ne_bytes();
    world.stack().set_option(SERVED, SOCKET, libc::SO_SNDBUF, &asked).unwrap();
    assert_eq!(number(world, SOCKET, libc::SO_SNDBUF), 16384);
    let stack = world.stack();
    let short = stack.set_option(SERVED, SOCKET, libc::SO_KEEPALIVE, &[1]);
    assert_eq!(short, Err(Errno::INVAL));
    // What mosquitto meets on an IPv4 socket.
    let other = stack.set_option(SERVED, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &ONE);
    assert_eq!(other, Err(Errno::NOPROTOOPT));
    assert_eq!(stack.option(SERVED, SOCKET, 9999, &mut [0; 4]), Err(Errno::NOPROTOOPT));
    let late = stack.set_option(SERVED, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &ONE);
    assert_eq!(late, Err(Errno::INVAL), "that is for sockets that are not connected");
}

pub(crate) fn an_option_is_cut_to_the_room_there_is<W: World>(world: &mut W) {
    pair(world);
    let (one, two, none) = (&mut [9; 1], &mut [9; 2], &mut []);
    let stack = world.stack();
    stack.set_option(SERVED, SOCKET, libc::SO_KEEPALIVE, &ONE).unwrap();
    assert_eq!(stack.option(SERVED, SOCKET, libc::SO_KEEPALIVE, two), Ok(2));
    assert_eq!(*two, ONE[..2]);
    // ip(7): a small number fits a byte.
    assert_eq!(stack.option(SERVED, libc::IPPROTO_IP, libc::IP_TTL, one), Ok(1));
    assert_eq!(stack.option(SERVED, SOCKET, libc::SO_KEEPALIVE, none), Ok(0));
    stack.set_option(SERVED, libc::IPPROTO_IP, libc::IP_TOS, &16i32.to_ne_bytes()).unwrap();
    let three = &mut [9; 3];
    assert_eq!(stack.option(SERVED, libc::IPPROTO_IP, libc::IP_TOS, three), Ok(1));
    assert_eq!(*three, [16, 9, 9]);
}

pub(crate) fn options_that_mean_something_else_in_the_cards_process_do_not_travel<W: World>(
    world: &mut W,
) {
    listen(world, &[]);
    let stack = world.stack();
    for name in [libc::SO_ATTACH_FILTER, libc::SO_MARK, libc::SO_RCVBUFFORCE] {
        let refused = stack.set_option(LISTENER, SOCKET, name, &[0; 16]);
        assert_eq!(refused, Err(Errno::NOPROTOOPT), "{name}");
    }
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE);
    assert_eq!(stack.option(LISTENER, level, name, &mut [0; 64]), Err(Errno::NOPROTOOPT));
    let priority = 7i32.to_ne_bytes();
    let refused = stack.set_option(LISTENER, SOCKET, libc::SO_PRIORITY, &priority);
    assert_eq!(refused, Err(Errno::PERM));
}

pub(crate) fn a_connection_has_the_options_of_its_listener<W: World>(world: &mut W) {
    let idle = 33i32.to_ne_bytes();
    let (tcp, keep_idle) = (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE);
    let address = listen(
        world,
        &[
            on(SOCKET, libc::SO_KEEPALIVE),
            SocketOption { level: tcp, name: keep_idle, value: &idle },
            on(tcp, libc::TCP_FASTOPEN),
        ],
    );
    connect(world, address, SERVED);
    assert_eq!(number(world, SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(number(world, tcp, keep_idle), 33);
    assert_eq!(number(world, tcp, libc::TCP_FASTOPEN), 0, "that is the listener's alone");
    world.stack().set_option(SERVED, SOCKET, libc::SO_KEEPALIVE, &[0; 4]).unwrap();
    let mut value = [0; 4];
    world.stack().option(LISTENER, SOCKET, libc::SO_KEEPALIVE, &mut value).unwrap();
    assert_eq!(value, ONE, "and its connection's are not the listener's");
}

pub(crate) fn a_refused_option_leaves_no_socket<W: World>(world: &mut W) {
    let any = SocketAddr::new(world.card(), 0);
    let wrong = [SocketOption { level: SOCKET, name: libc::SO_KEEPALIVE, value: &[1] }];
    assert_eq!(world.stack().bind(LISTENER, 0, any, &wrong), Err(Errno::INVAL));
    assert_eq!(world.stack().listen(LISTENER, 1, &[]), Err(Errno::BADF));
    let server = world.serve();
    assert_eq!(world.stack().connect(SERVED, 0, server, &wrong), Err(Errno::INVAL));
    assert_eq!(world.stack().option(SERVED, SOCKET, libc::SO_ERROR, &mut [0; 4]), Err(Errno::BADF));
}

pub(crate) fn an_error_is_told_once<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = connect(world, address, SERVED);
    world.reset(client);
    crate::world::until(world, "the reset is there", |world, _| {
        (number(world, SOCKET, libc::SO_ERROR) == libc::ECONNRESET).then_some(())
    });
    assert_eq!(number(world, SOCKET, libc::SO_ERROR), 0);
    assert_eq!(received(world, SERVED), dpu_server::stack::Received::Fin);
    world.stack().close(SERVED, End::Close);
}
