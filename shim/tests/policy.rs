//! What a program does that may change what it permits: the card is told before the program goes on.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use mqttshim_schema::Notice;
use support::card::Card;
use tempfile::TempDir;

/// A program that does as it is told, and its card.
struct Stage {
    folder: TempDir,
    card: Card,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Stage {
    /// The program; `linked` are more arguments to link it with.
    fn begin(linked: impl Fn(&Path) -> Vec<String>) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let linked = linked(folder.path());
        let linked: Vec<&str> = linked.iter().map(String::as_str).collect();
        let program = support::compile("policy.c", folder.path(), &linked);
        let card = Card::start(folder.path());
        let mut command = support::preloaded(program);
        command.current_dir(folder.path());
        command.env("MQTTSHIM_LISTEN", "0-65535").env("MQTTSHIM_SESSION", card.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Stage { folder, card, child, output }
    }

    /// The same, with a listener on the card.
    fn listening() -> Stage {
        let mut stage = Stage::begin(|_| Vec::new());
        stage.listen();
        stage
    }

    /// Has the program do something, and returns what came of it.
    fn tell(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn listen(&mut self) -> u16 {
        self.tell("listen").parse().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, "user somebody\n").unwrap();
        path
    }

    /// A shared object of this name.
    fn plugin(&self, name: &str) -> PathBuf {
        let made = support::compile("plugin.c", self.folder.path(), &["-shared", "-fPIC"]);
        let path = self.folder.path().join(name);
        fs::rename(made, &path).unwrap();
        path
    }

    /// The epoch once everything the program did so far has been told: a listener closes behind it all.
    fn epoch(&mut self) -> u64 {
        self.card.settled_epoch()
    }

    /// What the card was told is loaded.
    fn loaded(&mut self) -> Vec<String> {
        self.card.settled_epoch();
        let told = self.card.told();
        told.into_iter()
            .filter(|(notice, _)| *notice == Notice::LibraryLoaded)
            .map(|(_, name)| name)
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Ended already if it failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_way_to_open_a_file_for_reading_raises_the_epoch_once() {
    let mut stage = Stage::listening();
    let path = stage.file("acl");
    for how in [
        "open",
        "open64",
        "openat",
        "openat64",
        "__open_2",
        "__open64_2",
        "__openat_2",
        "__openat64_2",
        "syscall",
        "fopen",
        "fopen64",
        "freopen",
        "freopen64",
        "read and write",
        "fork",
    ] {
        let before = stage.epoch();
        assert_eq!(stage.tell(&format!("{how}:{}", path.display())), "ok", "{how}");
        assert_eq!(stage.epoch(), before + 1, "{how}");
    }
}

#[test]
fn a_file_that_is_missing_may_mean_as_much_as_one_that_is_there() {
    let mut stage = Stage::listening();
    let before = stage.epoch();
    assert_eq!(stage.tell("fopen:/nonexistent/acl"), "No such file or directory");
    assert_eq!(stage.epoch(), before + 1);
}

#[test]
fn writing_and_what_is_never_policy_and_what_came_before_the_listener_leave_the_epoch_alone() {
    let mut stage = Stage::begin(|_| Vec::new());
    let path = stage.file("acl");
    assert_eq!(stage.tell(&format!("open:{}", path.display())), "ok");
    stage.listen();
    assert_eq!(stage.epoch(), 0);
    let log = stage.folder.path().join("log");
    for how in ["write", "append", "creat", "rewrite"] {
        assert_eq!(stage.tell(&format!("{how}:{}", log.display())), "ok", "{how}");
    }
    for path in ["/etc/hosts.allow", "/etc/hosts.deny", "/proc/self/stat", "/dev/urandom"] {
        stage.tell(&format!("fopen:{path}"));
    }
    assert_eq!(stage.epoch(), 0);
}

#[test]
fn a_path_that_is_no_address_fails_as_it_does_without_us() {
    let mut stage = Stage::listening();
    assert_eq!(stage.tell("nowhere:"), "Bad address");
    assert_eq!(stage.epoch(), 0);
}

#[test]
fn accepting_a_client_leaves_the_epoch_alone() {
    let mut stage = Stage::begin(|_| Vec::new());
    let port = stage.listen();
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(stage.tell("accept:"), "ok");
    assert_eq!(stage.epoch(), 0);
}

#[test]
fn a_plugin_is_told_by_name_whether_it_was_loaded_before_the_listener_or_after() {
    let mut stage = Stage::begin(|_| Vec::new());
    let (first, second) = (stage.plugin("first.so"), stage.plugin("second.so"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    assert_eq!(stage.tell(&format!("dlopen:{first}")), "ok");
    stage.listen();
    assert_eq!(stage.loaded(), [first]);
    assert_eq!(stage.epoch(), 0);
    assert_eq!(stage.tell(&format!("dlopen:{second}")), "ok");
    assert_eq!(stage.loaded(), [first, second]);
    assert_eq!(stage.epoch(), 1);
    // It is there already.
    assert_eq!(stage.tell(&format!("dlopen:{second}")), "ok");
    assert_eq!(stage.loaded(), [first, second]);
}

#[test]
fn what_was_not_loaded_or_was_given_back_is_no_plugin() {
    let mut stage = Stage::begin(|_| Vec::new());
    let given_back = stage.plugin("given_back.so");
    for name in ["/nonexistent/missing.so", "libmissing.so"] {
        assert_eq!(stage.tell(&format!("dlopen:{name}")), "not loaded");
    }
    assert_eq!(stage.tell(&format!("open and close:{}", given_back.display())), "ok");
    stage.listen();
    assert_eq!(stage.tell("dlopen:/nonexistent/missing.so"), "not loaded");
    assert_eq!(stage.tell("dlopen:libc.so.6"), "ok", "it is there already");
    assert_eq!(stage.loaded(), [""; 0]);
    let before = stage.epoch();
    assert_eq!(stage.tell("itself:"), "ok");
    assert_eq!(stage.tell("loaded:/nonexistent/missing.so"), "not loaded");
    assert_eq!(stage.epoch(), before, "nothing can be loaded by these");
}

#[test]
fn a_library_in_a_name_space_of_its_own_is_told_too() {
    let mut stage = Stage::listening();
    let plugin = stage.plugin("apart.so");
    let plugin = plugin.to_str().unwrap();
    assert_eq!(stage.tell(&format!("dlmopen:{plugin}")), "ok");
    assert_eq!(stage.loaded(), [plugin]);
    assert_eq!(stage.epoch(), 1);
}

#[test]
fn a_bare_name_is_looked_for_where_its_caller_says() {
    // Only the program's own RUNPATH leads there.
    let mut stage = Stage::begin(|folder| {
        vec!["-Wl,--enable-new-dtags".into(), format!("-Wl,-rpath,{}", folder.display())]
    });
    stage.plugin("libbare.so");
    assert_eq!(stage.tell("dlopen:libbare.so"), "ok");
    stage.listen();
    assert_eq!(stage.loaded(), ["libbare.so"]);
}

#[test]
fn a_relative_path_is_told_as_the_program_wrote_it() {
    let mut stage = Stage::begin(|_| Vec::new());
    stage.plugin("near.so");
    assert_eq!(stage.tell("dlopen:./near.so"), "ok");
    stage.listen();
    assert_eq!(stage.loaded(), ["./near.so"]);
}
