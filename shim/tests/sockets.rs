//! Sockets on the card behave as the kernel's: each scenario of `programs/server.c` runs once on each, with the same client
//! and the same checks. The card is `support/card.rs`.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Duration;

use support::card::Card;
use support::server::{Server, assert_echo, exchange};

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

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) >> 3) as u8).collect()
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

#[test]
fn a_number_that_stdio_closed_is_the_next_files() {
    on_both("stale", |server| {
        server.connect().read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn threads_that_wait_can_be_cancelled_and_served_together() {
    on_both("threads", |server| {
        let first = server.connect();
        // Keeps the reader waiting until it is cancelled.
        std::thread::sleep(Duration::from_millis(100));
        assert_echo(first);
        let mut line = String::new();
        server.output.read_line(&mut line).unwrap();
        assert_eq!(line, "accepting\n");
        let _clients = [server.connect(), server.connect()];
        let mut rest = String::new();
        server.output.read_line(&mut rest).unwrap();
        assert_eq!(rest, "ok\n");
        server.rest = rest;
    });
}

#[test]
fn the_smallest_stack_is_large_enough() {
    on_both("small_stack", |server| {
        let bytes = pattern(1_000_000);
        assert!(exchange(server.connect(), &bytes) == bytes);
    });
}
