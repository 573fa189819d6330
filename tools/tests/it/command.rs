//! `mqttshim run`, `doctor`, `stat` and `completions` as a user meets them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{mqttshim, skip, stderr, stdout};
use tempfile::TempDir;

/// A library that does nothing when loaded, built for this machine.
fn harmless_library(folder: &TempDir) -> Option<PathBuf> {
    let (source, library) = (folder.path().join("a.c"), folder.path().join("libmqttshim.so"));
    fs::write(&source, "int mqttshim_test_nothing;\n").unwrap();
    let built = Command::new("cc").args(["-shared", "-o"]).arg(&library).arg(&source).status();
    if built.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    skip("no C compiler for a library to preload (apt-get install gcc)");
    None
}

fn script(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("script");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_program_runs_with_the_library_the_variables_and_its_own_exit_status() {
    let folder = TempDir::new().unwrap();
    let Some(library) = harmless_library(&folder) else { return };
    let output = mqttshim()
        .env("MQTTSHIM_LIBRARY", &library)
        .args(["run", "--listen", "1884", "--fallback", "fail", "--", "sh", "-c"])
        .arg("echo $LD_PRELOAD $MQTTSHIM_LISTEN $MQTTSHIM_FALLBACK $0; exit 42")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
    let library = library.canonicalize().unwrap();
    assert_eq!(stdout(&output), format!("{} 1884 fail sh\n", library.display()));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let folder = TempDir::new().unwrap();
    let Some(library) = harmless_library(&folder) else { return };
    let good = script(&folder, "#!/bin/sh\nexit 5\n");
    let output = mqttshim().env("MQTTSHIM_LIBRARY", &library).arg("run").arg(good).output();
    assert_eq!(output.unwrap().status.code(), Some(5));
    let missing = script(&folder, "#!/no/such/interpreter\n");
    let output = mqttshim().env("MQTTSHIM_LIBRARY", &library).arg("run").arg(missing).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("/no/such/interpreter is missing"), "{}", stderr(&output));
}

#[test]
fn a_static_program_is_explained_and_runs_only_when_asked_to() {
    let folder = TempDir::new().unwrap();
    let Some(library) = harmless_library(&folder) else { return };
    let (source, program) = (folder.path().join("b.c"), folder.path().join("b"));
    fs::write(&source, "int main(void) { return 9; }\n").unwrap();
    let built = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        skip("no static libc (apt-get install libc6-dev)");
        return;
    }
    let run = |more: &[&str]| {
        let mut command = mqttshim();
        command.env("MQTTSHIM_LIBRARY", &library).arg("run").args(more).arg("--").arg(&program);
        command.output().unwrap()
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("statically linked"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--fallback kernel"));
    let ran = run(&["--fallback", "kernel"]);
    assert_eq!(ran.status.code(), Some(9));
    assert!(stderr(&ran).contains("warning"), "{}", stderr(&ran));
}

#[test]
fn a_missing_and_an_unexecutable_program_have_the_shells_statuses() {
    let missing = mqttshim().args(["run", "--", "no-such-broker"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("no such program"));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("plain");
    fs::write(&path, "").unwrap();
    let plain = mqttshim().arg("run").arg(path).output().unwrap();
    assert_eq!(plain.status.code(), Some(126));
}

#[test]
fn a_missing_library_says_where_it_was_looked_for() {
    let output = mqttshim()
        .env("MQTTSHIM_LIBRARY", "/nowhere/libmqttshim.so")
        .args(["run", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("/nowhere/libmqttshim.so"), "{}", stderr(&output));
}

#[test]
fn the_doctor_finds_a_missing_session_and_a_library_that_loads() {
    let folder = TempDir::new().unwrap();
    let Some(library) = harmless_library(&folder) else { return };
    let session = folder.path().join("session.sock");
    let output = mqttshim()
        .arg("doctor")
        .env("MQTTSHIM_LIBRARY", &library)
        .env("MQTTSHIM_SESSION", &session)
        .env("MQTTSHIM_TYPO", "1")
        .env("MQTTSHIM_AGENT_LOG", "debug")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(text.contains("libmqttshim.so, loads"), "{text}");
    assert!(text.contains(&format!("{} is not there", session.display())), "{text}");
    assert!(
        text.contains("MQTTSHIM_TYPO=1") && text.matches("means nothing").count() == 1,
        "{text}"
    );
}

#[test]
fn stat_without_a_server_says_what_to_start() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = mqttshim().args(["stat", "--metrics", &port.to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--metrics"), "{}", stderr(&output));
}

#[test]
fn completions_know_the_commands() {
    let output = mqttshim().args(["completions", "bash"]).output().unwrap();
    assert!(output.status.success());
    assert!(stdout(&output).contains("fanout"));
}
