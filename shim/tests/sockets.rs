//! Sockets on the card behave as the kernel's: each scenario of `programs/server.c` runs once on each, with the same client
//! and the same checks. The card is `support/card.rs`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use support::card::Card;

/// A scenario's program, up and listening.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    fn start(command: &mut Command, scenario: &str) -> Server {
        let mut child =
            command.arg(scenario).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            let _ = child.wait();
            panic!("{scenario} does not listen: {line:?} {errors}");
        });
        Server { child, output, port }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let patience = Some(Duration::from_secs(20));
        client.set_read_timeout(patience).unwrap();
        client.set_write_timeout(patience).unwrap();
        client
    }

    #[track_caller]
    fn assert_ok(mut self, ground: &str) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            status.success() && rest.ends_with("ok\n") && errors.is_empty(),
            "on {ground}: {status}\n{rest}{errors}"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(mut errors) = self.child.stderr.take()
        {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            eprintln!("the program said: {text}");
        }
    }
}

/// Plays `client` against a scenario on the kernel's sockets and on the card's.
#[track_caller]
fn on_both(scenario: &str, client: impl Fn(&mut Server)) {
    let folder = tempfile::tempdir().unwrap();
    let program = support::compile("server.c", folder.path(), &[]);
    let mut server = Server::start(&mut Command::new(&program), scenario);
    client(&mut server);
    server.assert_ok("the kernel");

    eprintln!("the kernel passed {scenario}");
    let card = Card::start(folder.path());
    let mut command = support::preloaded(&program);
    command.env("MQTTSHIM_LISTEN", "0-65535").env("MQTTSHIM_SESSION", card.path());
    let mut server = Server::start(&mut command, scenario);
    client(&mut server);
    server.assert_ok("the card");
    let notices = card.notices();
    assert!(
        notices.contains(&mqttshim_schema::Notice::SessionOpened),
        "nothing was offloaded: {notices:?}"
    );
}

/// Sends `bytes`, half-closes, and reads until the end.
fn exchange(mut client: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut writer = client.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    })
}

#[track_caller]
fn assert_echo(client: TcpStream) {
    assert_eq!(exchange(client, b"hello, card"), b"hello, card");
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 >> 3) as u8).collect()
}

/// What TCP sends when a client is killed with data unread.
fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_stream_is_echoed_whole_and_addresses_are_the_clients() {
    on_both("echo", |server| {
        let bytes = pattern(3_000_000);
        assert!(exchange(server.connect(), &bytes) == bytes);
    });
}

#[test]
fn a_registration_made_before_bind_survives_listen_and_readiness_is_level_triggered() {
    on_both("epoll", |server| {
        let clients = [server.connect(), server.connect(), server.connect()];
        for client in clients {
            assert_echo(client);
        }
    });
}

#[test]
fn every_arrival_is_an_edge() {
    on_both("edge", |server| {
        let mut client = server.connect();
        for _ in 0..3 {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        client.read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn flags_vectors_and_messages_work_as_documented() {
    on_both("flags", |server| {
        let mut client = server.connect();
        for part in [&b"abc"[..], b"def", b"gh", b"ijklmnop"] {
            client.write_all(part).unwrap();
            std::thread::yield_now();
        }
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"more");
        client.write_all(b"back").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"xyzzz");
        client.write_all(b"12345").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        client.shutdown(Shutdown::Write).unwrap();
    });
}

#[test]
fn options_reach_the_socket_and_errors_are_the_kernels() {
    on_both("options", |server| {
        let mut client = server.connect();
        client.read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn a_reset_is_told_once_then_end_of_stream_then_broken_pipe() {
    on_both("reset", |server| {
        let mut client = server.connect();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        reset(client);
    });
}

#[test]
fn a_write_after_shutdown_raises_sigpipe_unless_told_not_to() {
    on_both("sigpipe", |server| {
        server.connect().read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn signals_end_or_restart_a_blocking_read_as_their_handlers_ask() {
    on_both("signals", |server| {
        let mut client = server.connect();
        // The program asks after its first alarm, and goes on reading through the second.
        client.read_exact(&mut [0]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        client.write_all(b"!").unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn what_was_written_before_exit_is_delivered() {
    on_both("bulk", |server| {
        let mut bytes = Vec::new();
        server.connect().read_to_end(&mut bytes).unwrap();
        assert!(bytes == pattern(8 * 1024 * 1024));
    });
}

#[test]
fn a_client_that_does_not_read_blocks_the_program_until_it_does() {
    on_both("backpressure", |server| {
        let mut client = server.connect();
        let mut line = String::new();
        server.output.read_line(&mut line).unwrap();
        assert_eq!(line, "blocked\n");
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        assert!(bytes == pattern(8 * 1024 * 1024));
    });
}

#[test]
fn a_port_in_use_is_told_at_bind_and_free_after_close() {
    on_both("in_use", |server| assert_echo(server.connect()));
}

#[test]
fn copies_keep_a_socket_until_the_last_close() {
    on_both("dup", |server| {
        assert_echo(server.connect());
        assert_echo(server.connect());
    });
}

#[test]
fn a_copy_made_before_listen_listens_too() {
    on_both("dup_before_listen", |server| assert_echo(server.connect()));
}

#[test]
fn a_forked_child_shares_sockets_with_its_parent() {
    on_both("fork", |server| {
        for _ in 0..3 {
            assert_echo(server.connect());
        }
    });
}

#[test]
fn a_child_forked_before_listen_serves() {
    on_both("fork_before_listen", |server| assert_echo(server.connect()));
}

#[test]
fn what_a_vforked_child_closes_stays_open_in_the_parent() {
    on_both("vfork", |server| {
        assert_echo(server.connect());
        assert_echo(server.connect());
    });
}

#[test]
fn a_program_that_closes_everything_can_go_on() {
    on_both("close_range", |server| {
        let mut first = server.connect();
        first.read_to_end(&mut Vec::new()).unwrap();
        let mut line = String::new();
        server.output.read_line(&mut line).unwrap();
        server.port = line.trim().parse().unwrap();
        assert_echo(server.connect());
    });
}

#[test]
fn a_file_is_sent_from_where_it_should() {
    on_both("sendfile", |server| {
        let mut bytes = Vec::new();
        server.connect().read_to_end(&mut bytes).unwrap();
        assert!(bytes == pattern(300_000));
    });
}

#[test]
fn without_descriptors_a_connection_stays_queued() {
    on_both("descriptors", |server| assert_echo(server.connect()));
}

#[test]
fn a_listener_that_was_shut_down_refuses() {
    on_both("shutdown_listener", |server| assert_echo(server.connect()));
}

#[test]
fn an_ipv4_client_of_a_dual_stack_listener_shows_as_mapped() {
    on_both("dual_stack", |server| assert_echo(server.connect()));
}
