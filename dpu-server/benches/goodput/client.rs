//! Kernel clients, each with one stream.

use std::fmt::{Display, Formatter};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::server::{FROM, TO};
use super::sizes;

/// To find the pace: slow start, some losses.
const WARM_UP: Duration = Duration::from_millis(700);
const MEASURED: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(20);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Course {
    /// To the client.
    FromServer,
    /// From the client.
    ToServer,
}

impl Display for Course {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Course::FromServer => "to the client",
            Course::ToServer => "from the client",
        })
    }
}

/// A server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    /// The client's buffers have the size of the server's.
    pub(crate) is_bounded: bool,
}

/// Bytes a second of one stream, the mean of `streams` at once.
pub(crate) fn measure(target: Target, course: Course, streams: usize) -> f64 {
    let threads: Vec<_> =
        (0..streams).map(|_| std::thread::spawn(move || stream(target, course))).collect();
    let sum: f64 = threads.into_iter().map(|it| it.join().expect("a stream's own thread")).sum();
    sum / streams as f64
}

fn stream(target: Target, course: Course) -> f64 {
    let mut socket = connect(target);
    socket.write_all(&[if course == Course::FromServer { FROM } else { TO }]).expect("a server");
    let mut chunk = vec![0; 64 * 1024];
    let start = Instant::now();
    let (mut bytes, mut begun) = (0, None);
    loop {
        let moved = match course {
            Course::FromServer => socket.read(&mut chunk),
            Course::ToServer => socket.write(&chunk),
        };
        let moved = moved.expect("the stream goes on");
        assert!(moved > 0, "the server ended it");
        let now = start.elapsed();
        match begun {
            None if now >= WARM_UP => begun = Some(now),
            None => {}
            Some(since) => {
                bytes += moved;
                if now >= since + MEASURED {
                    return bytes as f64 / (now - since).as_secs_f64();
                }
            }
        }
    }
}

fn connect(target: Target) -> std::net::TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    sizes::set(&socket, target.is_bounded);
    let address = SocketAddr::from((target.address, target.port));
    socket.connect_timeout(&address.into(), PATIENCE).expect("a server");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    // What is left when the figure is taken is nobody's: reset.
    socket.set_linger(Some(Duration::ZERO)).expect("an option");
    socket.into()
}
