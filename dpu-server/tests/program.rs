//! The program's manners: mistakes are named, exit statuses hold, idle costs nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which the lint does not know as such")]

mod host;

use std::process::{Command, Output};

use host::{Host, Server, eventually};
use rustix::process::Signal;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dpu-server")).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_misspelt_key_is_refused_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.toml");
    std::fs::write(&path, "metircs = \"127.0.0.1:1\"").unwrap();
    for arguments in [
        ["check-config", path.to_str().unwrap()].as_slice(),
        &["run", "--config", path.to_str().unwrap()],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("\"metircs\"") && text.contains("\"metrics\""), "{text}");
    }
}

#[test]
fn a_good_file_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.toml");
    std::fs::write(&path, "trust = \"suback\"\n[limits]\nroutes_max = 10").unwrap();
    let output = run(&["check-config", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ok"));
}

#[test]
fn an_option_that_is_none_exits_with_2() {
    for arguments in [["run", "--port", "pci:eth0"].as_slice(), &["run", "--channel", "doca"], &[]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn more_sockets_than_descriptors_are_refused_with_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.toml");
    std::fs::write(&path, "[limits]\nsockets_max = 1000000").unwrap();
    let program = env!("CARGO_BIN_EXE_dpu-server");
    let line = format!("ulimit -n 1024; exec {program} run --config {}", path.display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("2000128") && text.contains("1024") && text.contains("448"), "{text}");
}

#[test]
fn a_path_or_an_address_in_use_is_named_with_what_to_do() {
    let server = Server::start(&[], "");
    let host = Host::connect(&server.path());
    let channel = format!("emulated:{}", server.path().display());
    let output = run(&["run", "--channel", &channel]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    drop(host);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["run", "--metrics", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--metrics"), "{}", stderr(&output));
}

#[test]
fn list_and_doctor_say_what_this_machine_allows() {
    let output = run(&["list"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["kernel", "local", "emulated:PATH"] {
        assert!(text.contains(word), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session/session.sock");
    let output = run(&["doctor", "--session", session.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let impossible = "/proc/self/nothing/session.sock";
    assert_eq!(run(&["doctor", "--session", impossible]).status.code(), Some(1));
}

#[test]
fn doctor_says_whether_the_port_can_be_had_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session/session.sock");
    let doctor = |port: &str| {
        let own = ["--stack", "smoltcp", "--address", "10.0.0.1/24", "--port", port];
        let output = Command::new(env!("CARGO_BIN_EXE_dpu-server"))
            .args(["doctor", "--session"])
            .arg(&session)
            .args(own)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = doctor("xdp:nosuchlink");
    assert!(code == Some(1) && text.contains("there is no interface nosuchlink"), "{text}");
    let (code, text) = doctor("mem:/proc/self/nothing/frames");
    assert!(code == Some(1) && text.contains("folder"), "{text}");
    let frames = folder.path().join("frames");
    let port = format!("mem:{}", frames.display());
    let (code, text) = doctor(&port);
    assert!(code == Some(0) && text.contains("can be served"), "{text}");
    assert!(!frames.exists());
}

#[test]
fn completions_are_made_for_a_shell() {
    let output = run(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("dpu-server"));
}

/// CPU time of a process in clock ticks (proc(5), fields 14 and 15 of stat).
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn with_the_agent_inside_it_starts_idles_without_cpu_and_stops_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session/session.sock");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dpu-server"))
        .args(["run", "--session"])
        .arg(&session)
        .spawn()
        .unwrap();
    eventually(|| session.exists());
    let before = ticks(child.id());
    std::thread::sleep(std::time::Duration::from_secs(2));
    let spent = ticks(child.id()) - before;
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(spent <= 2, "{spent} ticks in two idle seconds");
    assert_eq!(status.code(), Some(0));
    assert!(!session.exists());
}
