//! The library is a guest: who does not need it does not notice it, and who does is not charged for it.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use mqttshim_integration::{Broker, Card, Client, Folder, Process, broker, compiler};
use mqttshim_integration::{needs, network, ports, procfs, wait};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The library's own descriptors are numbered from here.
const PRIVATE_FD_MIN: u32 = 900;

#[test]
fn ordinary_programs_say_what_they_always_say_and_open_no_session() {
    let folder = Folder::new();
    let path = folder.join("session.sock");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::UNIX;
    let session = rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&session, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&session, 10).unwrap();
    let programs: [&[&str]; 6] = [
        &["/bin/true"],
        &["ls", "-l", "/usr"],
        &["gdb", "--version"],
        &["sh", "-c", "echo one | cat; exit 3"],
        &["python3", "-c", "import socket; socket.socket().close(); print('done')"],
        &["bash", "-c", "printf '%s\\n' *"],
    ];
    for program in programs {
        if needs::find(program[0]).is_none() && !std::path::Path::new(program[0]).exists() {
            let _ = needs::skip(&format!("{} is not installed", program[0]));
            continue;
        }
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).env("LC_ALL", "C");
        let plain = command.output().unwrap();
        broker::preload(&mut command, &path, 1883);
        let ours = command.output().unwrap();
        assert_eq!(ours.status, plain.status, "{program:?}");
        assert_eq!(ours.stdout, plain.stdout, "{program:?}");
        assert_eq!(ours.stderr, plain.stderr, "{program:?}");
        assert!(rustix::net::accept(&session).is_err(), "{program:?} opened a session");
    }
}

/// Numbers of a process's descriptors, small ones and ours.
fn descriptors(pid: u32) -> (usize, usize) {
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let (ours, small): (Vec<u32>, Vec<u32>) = numbers.partition(|&fd| fd >= PRIVATE_FD_MIN);
    (small.len(), ours.len())
}

#[test]
fn a_broker_gets_no_thread_and_no_small_descriptor_from_us() {
    needs!("mosquitto");
    let folder = Folder::new();
    let plain = Broker::plain(&folder);
    let card = Card::start(&folder);
    let ours = Broker::on_card(&folder, card.session());
    let clients: Vec<Client> = [plain.port(), ours.port()]
        .into_iter()
        .flat_map(|port| (0..5).map(move |number| Client::new(port, &format!("guest-{number}"))))
        .collect();
    let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    assert_eq!(threads(ours.pid()), threads(plain.pid()));
    // The probes that saw both brokers come up close in their own time.
    let (small, private) = wait::until("both have as many small descriptors", || {
        let (small, private) = descriptors(ours.pid());
        (small == descriptors(plain.pid()).0).then_some((small, private))
    });
    eprintln!("{small} descriptors each, {private} of ours, {} bytes resident", {
        procfs::resident_bytes(ours.pid())
    });
    // Control socket, doorbell, both ends of the bell, and the number kept free for a broker that has run out of them.
    assert!(private <= 5, "{private} descriptors of ours");
    drop(clients);
}

#[test]
fn ten_thousand_reads_and_writes_allocate_nothing() {
    needs!("cc");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let counter = compiler::compile(
        "../shim/tests/programs/allocations.c",
        folder.path(),
        &["-shared", "-fPIC"],
    );
    let program = compiler::compile("programs/echo.c", folder.path(), &[]);
    let port = ports::free();
    let mut command = Command::new(program);
    broker::preload(&mut command, card.session(), port);
    let library = mqttshim_integration::paths::library();
    command.env("LD_PRELOAD", format!("{}:{}", counter.display(), library.display()));
    let mut server = Process::start("echo", folder.path(), command.arg(port.to_string()));
    server.await_log("is served by the card");
    let mut client = TcpStream::connect((network::host(), port)).unwrap();
    client.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    client.set_nodelay(true).unwrap();
    // One outstanding at a time: each read finds its token, or waits for it.
    let mut answer = [0; 64];
    for round in 0..10_100_u32 {
        client.write_all(&[round as u8; 64]).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [round as u8; 64]);
    }
    assert!(server.await_end().success());
    let log = server.log();
    assert!(log.lines().any(|line| line == "0 allocations"), "{log}");
}
