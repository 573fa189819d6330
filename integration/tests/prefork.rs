//! Several processes on one session: a server whose workers accept on the listener they inherited.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::{Agent, Card, Folder, Process};
use mqttshim_integration::{broker, compiler, needs, network, ports, procfs, wait};
use rustix::process::{Pid, Signal};

const WORKERS: usize = 4;

/// The server, served by the card.
#[track_caller]
fn prefork(folder: &Folder, session: &Path, how: &str) -> (Process, u16) {
    let program = compiler::compile("programs/prefork.c", folder.path(), &[]);
    let port = ports::free();
    let mut command = Command::new(program);
    broker::preload(&mut command, session, port);
    command.args([how, &port.to_string(), &WORKERS.to_string()]);
    let mut process = Process::start("prefork", folder.path(), &mut command);
    process.await_log("listening");
    assert!(process.log().contains("is served by the card"));
    (process, port)
}

/// A client and the worker that serves it.
struct Guest {
    stream: BufReader<TcpStream>,
    worker: u32,
}

impl Guest {
    fn new(port: u16) -> std::io::Result<Guest> {
        let stream = TcpStream::connect((network::host(), port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let worker = line.trim().parse().map_err(std::io::Error::other)?;
        Ok(Guest { stream, worker })
    }

    fn is_echoed(&mut self) -> bool {
        let mut line = String::new();
        self.stream.get_mut().write_all(b"echo\n").is_ok()
            && self.stream.read_line(&mut line).is_ok()
            && line == "echo\n"
    }
}

/// As many clients at once as there are workers. Each worker has one, or somebody would still wait.
#[track_caller]
fn fill(port: u16, workers: usize) -> Vec<Guest> {
    let mut guests: Vec<Guest> = Vec::new();
    while guests.len() < workers {
        let what = format!("worker {} of {workers} serves", guests.len() + 1);
        guests.push(wait::until(&what, || Guest::new(port).ok()));
    }
    let distinct: BTreeSet<u32> = guests.iter().map(|guest| guest.worker).collect();
    assert_eq!(distinct.len(), workers);
    assert!(guests.iter_mut().all(Guest::is_echoed));
    guests
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_worker_that_is_killed_takes_its_own_client_along_and_nobody_elses() {
    needs!("cc");
    for how in ["accept", "epoll"] {
        let folder = Folder::new();
        let card = Card::start(&folder);
        let (_server, port) = prefork(&folder, card.session(), how);
        let mut guests = fill(port, WORKERS);
        for left in (1..WORKERS).rev() {
            let mut victim = guests.remove(0);
            kill(victim.worker);
            wait::until("its client's connection ends", || (!victim.is_echoed()).then_some(()));
            assert!(guests.iter_mut().all(Guest::is_echoed), "{how}: another client noticed");
            drop(guests);
            guests = fill(port, left);
        }
    }
}

#[test]
fn every_worker_accepts_again_after_the_card_returned() {
    needs!("cc");
    for how in ["accept", "epoll"] {
        let folder = Folder::new();
        let mut card = Card::start(&folder);
        let (mut server, port) = prefork(&folder, card.session(), how);
        let workers = |guests: &[Guest]| -> BTreeSet<u32> {
            guests.iter().map(|guest| guest.worker).collect()
        };
        let before = workers(&fill(port, WORKERS));
        for _ in 0..4 {
            card.restart();
            let guests = fill(port, WORKERS);
            assert_eq!(workers(&guests), before, "{how}");
            card.await_metrics("they meet in one session", |it| {
                (it.sum("mqttshim_session_state", &["state=\"open\""]) - 1.0).abs() < 0.5
            });
        }
        assert!(!server.log().contains("could not be served again"), "{}", server.log());
        assert!(server.is_running() && before.iter().all(|&pid| procfs::is_alive(pid)));
    }
}

#[test]
fn workers_of_a_killed_agent_meet_again_and_one_that_dies_meanwhile_is_not_waited_for() {
    needs!("cc");
    let folder = Folder::new();
    let (mut agent, card) = Agent::start(&folder);
    let (_server, port) = prefork(&folder, agent.session(), "epoll");
    let guests = fill(port, WORKERS);
    agent.process.kill();
    kill(guests[0].worker);
    agent.restart();
    let again = fill(port, WORKERS - 1);
    assert!(again.iter().all(|guest| guest.worker != guests[0].worker));
    drop((again, guests));
    card.await_metrics("no connection is left", |it| it.sum("mqttshim_connections", &[]) < 0.5);
}
