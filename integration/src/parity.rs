//! One C program, run on the kernel's sockets and on the card's: the kernel is the oracle.
//!
//! ```text
//! parity/*.c ── cc ──► cases ──┬── natively ───────────────────────────────► trace ┐
//!                              ├── preloaded, with a card ──────────────────► trace ┼─ the same text, or the test fails
//!                              └── preloaded, readiness only by the kernel's ► trace ┘
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::card::clear_environment;
use crate::compiler::compiled_folder;
use crate::{Card, Folder, Process, broker, network, ports};

/// What a connection's path or its client's first packet tells, which are others on a TAP device than on the loopback: as the
/// cases write options. See `docs/conformance.md`.
const TOLD_BY_THE_PATH: [&str; 14] = [
    // TCP_MAXSEG, IP_MTU, IPV6_MTU, IPV6_PATHMTU.
    "connection 6/2:",
    "connection 0/14:",
    "connection 41/24:",
    "connection 41/61:",
    // SO_SNDBUF grows by itself with the speed of the path.
    "connection 1/7:",
    // IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_IF of a connection are those of its SYN.
    "connection 0/33:",
    "accepted 0/33:",
    "second 0/33:",
    "connection 41/18:",
    "accepted 41/18:",
    "second 41/18:",
    "connection 41/17:",
    // SO_PEERNAME and TCP_AO_REPAIR, of which nothing but a refusal is told, and another one.
    "connection 1/28:",
    "listener 6/42:",
];
/// What our own TCP/IP does not do, and says so in `docs/conformance.md`.
const NOT_ON_OUR_OWN: [&str; 3] = [
    "a_bound_socket_may_connect_to_itself",
    "a_deferred_accept_waits_for_the_first_bytes",
    // The kernel does not answer a neighbour solicitation that comes from its own address.
    "an_ipv6_socket_connects_to_a_mapped_address",
];

/// How long a case may take: it ends itself before.
const PATIENCE: Duration = Duration::from_secs(40);

/// Where the program is.
///
/// # Panics
/// If it does not compile.
#[must_use]
#[track_caller]
pub fn program() -> PathBuf {
    compiled_folder("parity")
}

/// The names of all cases.
///
/// # Panics
/// If the program cannot be made or run.
#[must_use]
#[track_caller]
pub fn names() -> Vec<String> {
    let listed = Command::new(program()).arg("--list").output().expect("the program just made");
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

/// How a case is run.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Native,
    /// As everybody runs it: readiness is found at user level where that can be.
    Preloaded,
    /// Readiness is the kernel's alone.
    PreloadedWire,
}

/// Runs a case on both and compares.
///
/// # Panics
/// With both traces, where they differ.
#[track_caller]
pub fn assert_same(case: &str) {
    if network::is_own_stack() && NOT_ON_OUR_OWN.contains(&case) {
        return;
    }
    let program = program();
    let folder = Folder::new();
    let card = Card::start(&folder);
    let native = run(&folder, &program, case, Mode::Native, &card);
    assert!(native.lines().count() > 1, "the case says nothing: {native}");
    for mode in [Mode::Preloaded, Mode::PreloadedWire] {
        let ours = run(&folder, &program, case, mode, &card);
        assert!(
            native == ours,
            "the kernel (-) and the card (+, {mode:?}) differ:\n{}",
            difference(&native, &ours)
        );
    }
}

/// Runs a case and returns its trace.
#[track_caller]
fn run(folder: &Folder, program: &Path, case: &str, mode: Mode, card: &Card) -> String {
    // Never the same twice: a connection of the run before may still be in TIME_WAIT.
    let (port, connect_port) = (ports::free(), ports::free());
    let mut command = Command::new(program);
    clear_environment(&mut command);
    if !matches!(mode, Mode::Native) {
        let rules = format!(
            "offload listen *:{port}\noffload listen *:0\noffload connect *:{connect_port}\n"
        );
        let rules = folder.write("rules", &rules);
        broker::preload(&mut command, card.session(), port);
        command.env("MQTTSHIM_RULES", rules).env("MQTTSHIM_LOG", "warn");
    }
    if let Mode::PreloadedWire = mode {
        command.env("MQTTSHIM_EPOLL", "wire");
    }
    command.args([port.to_string(), connect_port.to_string(), case.to_owned()]);
    let mut process = Process::start(&format!("{mode:?}"), folder.path(), &mut command);
    let status = process.await_end_within(PATIENCE);
    let mut trace = process.log();
    if network::is_own_stack() {
        let is_told = |line: &&str| TOLD_BY_THE_PATH.iter().all(|told| !line.starts_with(told));
        trace = trace.lines().filter(is_told).fold(String::new(), |text, line| text + line + "\n");
    }
    writeln!(trace, "{status}").expect("a string takes text");
    trace
}

/// Lines that differ, each with its place; enough of them to see what is wrong.
fn difference(native: &str, ours: &str) -> String {
    let (mut left, mut right) = (native.lines(), ours.lines());
    let mut text = String::new();
    for line in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (native, ours) if native == ours => {}
            (native, ours) => {
                let (native, ours) = (native.unwrap_or("∅"), ours.unwrap_or("∅"));
                let _ = writeln!(text, "{line:4} - {native}\n     + {ours}");
            }
        }
        if text.len() > 4000 {
            break;
        }
    }
    text
}
