//! Programs that never offload a socket must not notice the library: same output, no connection, no descriptor.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

/// Runs a program with and without the library, beside a session that nobody may open.
#[track_caller]
fn assert_silent(program: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.sock");
    let session = UnixListener::bind(&path).unwrap();
    session.set_nonblocking(true).unwrap();
    let plain = run(Command::new(program).args(arguments));
    let ours = run(support::preloaded(program).args(arguments).env("MQTTSHIM_SESSION", &path));
    assert_eq!(ours.status, plain.status);
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(String::from_utf8_lossy(&ours.stderr), String::from_utf8_lossy(&plain.stderr));
    let knocked = session.accept();
    assert!(knocked.is_err(), "{program} opened a session");
}

fn run(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().unwrap()
}

#[test]
fn true_is_silent() {
    assert_silent("/bin/true", &[]);
}

#[test]
fn ls_is_silent() {
    assert_silent("ls", &["-l", "/usr"]);
}

#[test]
fn a_shell_with_pipes_and_redirections_is_silent() {
    let script =
        "exec 5>&1; echo one | cat | tr o 0; (echo two >&5); x=$(ls / | wc -l); echo $x; exit 3";
    assert_silent("sh", &["-c", script]);
}

#[test]
fn gdb_is_silent() {
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("SKIPPED: gdb is not installed");
        return;
    }
    assert_silent("gdb", &["--version"]);
}

#[test]
fn loading_the_library_makes_no_descriptor() {
    let listing = |command: &mut Command| {
        let output = run(command.args(["-c", "ls /proc/self/fd"]));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(listing(&mut support::preloaded("sh")), listing(&mut Command::new("sh")));
}

#[test]
fn a_client_that_connects_elsewhere_is_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3");
    if Command::new("bash").arg("--version").output().is_err() {
        eprintln!("SKIPPED: bash is not installed");
        return;
    }
    assert_silent("bash", &["-c", &script]);
}
