//! Cards that are not there, die and come back; what programs have outside the card; what a data call may cost.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use mqttshim_schema::Notice;
use support::card::Card;
use support::server::{Server, assert_echo};
use tempfile::TempDir;

/// A folder with the test program in it.
fn stage() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = support::compile("server.c", folder.path(), &[]);
    (folder, program)
}

/// The program with everything it listens on offloaded to the session in `folder`.
fn offloaded(folder: &TempDir, program: &PathBuf) -> Command {
    let mut command = support::preloaded(program);
    command
        .env("MQTTSHIM_LISTEN", "0-65535")
        .env("MQTTSHIM_SESSION", folder.path().join("session.sock"));
    command
}

/// User and system time of a process, in ticks of a hundredth second.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A server that echoes each connection once, in a thread that ends with the test.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut bytes = [0; 64];
            if let Ok(got @ 1..) = client.read(&mut bytes) {
                client.write_all(&bytes[..got]).unwrap();
            }
        }
    });
    port
}

#[test]
fn without_a_card_sockets_stay_with_the_kernel_after_one_warning() {
    let (folder, program) = stage();
    let server = Server::start(&mut offloaded(&folder, &program), "in_use");
    assert_echo(server.connect());
    let (status, errors) = server.finish();
    assert!(status.success(), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("stays with the kernel: no dpu-server answers at"), "{errors}");
    assert!(errors.contains("dpu-server run"), "{errors}");
}

#[test]
fn without_a_card_listen_fails_where_the_kernel_is_ruled_out() {
    let (folder, program) = stage();
    let output =
        offloaded(&folder, &program).env("MQTTSHIM_FALLBACK", "fail").arg("echo").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(errors.contains("as MQTTSHIM_FALLBACK=fail asks"), "{errors}");
    assert!(errors.contains("Network is down"), "{errors}");
}

#[test]
fn rules_that_cannot_be_read_leave_everything_with_the_kernel() {
    let (folder, program) = stage();
    let rules = folder.path().join("rules");
    fs::write(&rules, "offload listen *:1883\noffload lisen *:1\n").unwrap();
    let mut command = offloaded(&folder, &program);
    let server = Server::start(command.env("MQTTSHIM_RULES", &rules), "in_use");
    assert_echo(server.connect());
    let (status, errors) = server.finish();
    assert!(status.success(), "{errors}");
    let expected = format!(
        "{}:2: `lisen`: expected listen or connect; every socket stays with the kernel\n",
        rules.display()
    );
    assert!(errors.ends_with(&expected), "{errors}");
}

#[test]
fn an_unknown_variable_is_warned_of_when_a_session_is_to_be_opened() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let mut command = offloaded(&folder, &program);
    command.env("MQTTSHIM_LISEN", "1").env("MQTTSHIM_AGENT_LOG", "debug");
    let server = Server::start(&mut command, "in_use");
    assert_echo(server.connect());
    let (status, errors) = server.finish();
    assert!(status.success(), "{errors}");
    assert!(errors.ends_with("did you mean MQTTSHIM_LISTEN?\n"), "{errors}");
    assert!(!errors.contains("MQTTSHIM_AGENT_LOG"), "the agent's: {errors}");
    drop(card);
}

#[test]
fn a_card_that_dies_resets_connections_costs_no_time_and_is_served_again() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let mut server = Server::start(&mut offloaded(&folder, &program), "serve");
    let mut client = server.connect();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    drop(card);
    let mut line = String::new();
    server.output.read_line(&mut line).unwrap();
    assert_eq!(line, "ECONNRESET\n");
    for _ in 0..2 {
        // Gone: the program sleeps. A busy one would burn fifty ticks.
        let before = cpu_ticks(server.child.id());
        std::thread::sleep(Duration::from_millis(500));
        assert!(cpu_ticks(server.child.id()) - before <= 2, "the program spins without a card");
        // Back: the idle program is served again, at the same address.
        let card = Card::start(folder.path());
        let mut client = server.connect_patiently();
        client.write_all(b"again").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"again");
        drop(client);
        line.clear();
        server.output.read_line(&mut line).unwrap();
        assert_eq!(line, "end\n");
        drop(card);
    }
    let _card = Card::start(folder.path());
    server.connect_patiently().write_all(b"q").unwrap();
    server.assert_ok("a third card");
}

#[test]
fn what_a_listener_was_given_while_it_listened_holds_on_the_next_card_too() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let mut server = Server::start(&mut offloaded(&folder, &program), "late_options");
    let mut line = String::new();
    drop(server.connect());
    server.output.read_line(&mut line).unwrap();
    drop(card);
    let _card = Card::start(folder.path());
    let mut client = server.connect_patiently();
    server.output.read_line(&mut line).unwrap();
    assert_eq!(line, "idle 77, receives 3 s\n".repeat(2));
    client.write_all(b"q").unwrap();
    server.assert_ok("the next card");
}

#[test]
fn restarts_leave_no_descriptors_behind() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let server = Server::start(&mut offloaded(&folder, &program), "serve");
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    drop(server.connect());
    drop(card);
    let mut counts = Vec::new();
    for _ in 0..20 {
        let card = Card::start(folder.path());
        drop(server.connect_patiently());
        drop(card);
        counts.push(descriptors());
    }
    // The session in use and the one before it, and whatever connection is just closing.
    let first = counts[1];
    assert!(counts.iter().all(|&count| count <= first + 3), "{counts:?}");
}

#[test]
fn what_stays_outside_is_told_and_taken_back() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let mut command = offloaded(&folder, &program);
    let elsewhere = echo_server();
    let mut server = Server::start_with(&mut command, "outside", &[elsewhere.to_string()]);
    assert_echo(server.connect());
    server.output.read_line(&mut server.rest).unwrap();
    card.wait_for(|notices| notices.contains(&Notice::SessionEnded));
    server.assert_ok("the card");
    let count = |what| card.notices().iter().filter(|&&notice| notice == what).count();
    assert_eq!(count(Notice::ListenerOutside), 2);
    assert_eq!(count(Notice::ListenerOutsideGone), 1);
    assert_eq!(count(Notice::ConnectionOutside), 2, "a copy counts as well");
    assert_eq!(count(Notice::ConnectionOutsideGone), 2);
    let names = card.told().into_iter().filter(|(what, _)| *what == Notice::ConnectionOutside);
    let leads_there = |(_, name): (Notice, String)| name == format!("127.0.0.1:{elsewhere}");
    assert!(names.clone().all(leads_there), "{:?}", names.collect::<Vec<_>>());
}

#[test]
fn what_was_outside_before_the_session_is_told_first() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let rules = folder.path().join("rules");
    // The first listener of this scenario stays outside, the second is offloaded when the first is there already.
    fs::write(&rules, "kernel listen *:0\n").unwrap();
    let mut command = offloaded(&folder, &program);
    let server = Server::start(command.env("MQTTSHIM_RULES", &rules), "in_use");
    assert_echo(server.connect());
    server.finish();
    card.wait_for(|notices| notices.contains(&Notice::SessionEnded));
    assert_eq!(card.notices()[..2], [Notice::SessionOpened, Notice::ListenerOutside]);
    assert!(card.told()[1].1.parse::<std::net::SocketAddr>().is_ok(), "{:?}", card.told());
}

#[test]
fn outgoing_connections_go_to_the_card_where_a_rule_says_so() {
    let (folder, program) = stage();
    let port = echo_server().to_string();
    Server::start_with(&mut Command::new(&program), "connect", std::slice::from_ref(&port))
        .assert_ok("the kernel");
    let card = Card::start(folder.path());
    let rules = folder.path().join("rules");
    fs::write(&rules, "kernel listen *:*\noffload connect 127.0.0.0/8:*\n").unwrap();
    let mut command = offloaded(&folder, &program);
    command.env("MQTTSHIM_RULES", &rules);
    Server::start_with(&mut command, "connect", &[port]).assert_ok("the card");
    assert!(card.notices().contains(&Notice::SessionOpened));
    assert!(!card.notices().contains(&Notice::ConnectionOutside));
}

#[test]
fn reading_and_writing_allocate_nothing() {
    let (folder, program) = stage();
    let card = Card::start(folder.path());
    let counter = support::compile("allocations.c", folder.path(), &["-shared", "-fPIC"]);
    let mut command = offloaded(&folder, &program);
    let preload = format!("{}:{}", counter.display(), support::library().display());
    let mut server = Server::start(command.env("LD_PRELOAD", preload), "allocations");
    let mut client = server.connect();
    let mut writer = client.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || while writer.write_all(&[7; 1500]).is_ok() {});
        let mut bytes = [0; 4096];
        while client.read(&mut bytes).is_ok_and(|got| got > 0) {}
    });
    server.output.read_line(&mut server.rest).unwrap();
    server.assert_ok("the card");
    drop(card);
}

#[test]
fn a_program_that_gave_up_root_before_it_binds_is_served() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to give it up");
        return;
    }
    let (folder, program) = stage();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = folder.path().join("libmqttshim.so");
    fs::copy(support::library(), &library).unwrap();
    let card = Card::start(folder.path());
    let mut command = offloaded(&folder, &program);
    command.env("LD_PRELOAD", &library).uid(65534).gid(65534);
    let server = Server::start(&mut command, "fork");
    for _ in 0..3 {
        assert_echo(server.connect());
    }
    server.assert_ok("the card");
    assert!(card.notices().contains(&Notice::SessionOpened));
}
