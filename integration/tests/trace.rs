//! `MQTTSHIM_TRACE` against strace itself: the same program, run natively under the one and preloaded under the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::card::clear_environment;
use mqttshim_integration::trace::{self, Trace};
use mqttshim_integration::{Card, Folder, Process, broker, compiler, needs, ports};

/// The system calls the program makes on purpose.
const CALLS: &str = "accept,accept4,bind,close,close_range,connect,dup,dup2,dup3,epoll_ctl,fcntl,\
    getpeername,getsockname,getsockopt,ioctl,listen,preadv2,pwritev2,read,readv,recvfrom,recvmmsg,\
    recvmsg,sendfile,sendmmsg,sendmsg,sendto,setsockopt,shutdown,socket,socketpair,splice,write,writev";
const PATIENCE: Duration = Duration::from_secs(40);

/// The program, its port and its folder.
struct Calls<'a> {
    program: PathBuf,
    folder: &'a Folder,
    port: u16,
}

impl Calls<'_> {
    #[track_caller]
    fn new(folder: &Folder) -> Calls<'_> {
        let program = compiler::compile("programs/calls.c", folder.path(), &["-Wno-unused-result"]);
        Calls { program, folder, port: ports::free() }
    }

    fn arguments(&self, scratch: &str) -> [String; 2] {
        let scratch = self.folder.join(scratch);
        fs::create_dir(&scratch).expect("a folder of the test");
        // Both runs see the same name: it is part of what is compared.
        let link = self.folder.join("s");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&scratch, &link).expect("a folder of the test");
        [self.port.to_string(), link.display().to_string()]
    }

    /// Runs it under strace and returns what strace wrote.
    #[track_caller]
    fn under_strace(&self, flags: &[&str]) -> String {
        let output = self.folder.join("strace.out");
        let mut command = Command::new(needs::find("strace").expect("the test asked for it"));
        clear_environment(&mut command);
        command.args(["-f", "-e", "signal=none", "-qq", "-e"]).arg(format!("trace={CALLS}"));
        command.args(flags).arg("-o").arg(&output).arg(&self.program).args(self.arguments("a"));
        self.run("strace", &mut command);
        fs::read_to_string(output).expect("strace wrote it")
    }

    /// Runs it preloaded, with `MQTTSHIM_TRACE=value`, and returns what it said.
    #[track_caller]
    fn preloaded(&self, session: &Path, value: &str) -> String {
        let mut command = Command::new(&self.program);
        clear_environment(&mut command);
        broker::preload(&mut command, session, self.port);
        command.env("MQTTSHIM_LOG", "warn").env("MQTTSHIM_TRACE", value);
        command.args(self.arguments("b"));
        self.run("preloaded", &mut command)
    }

    #[track_caller]
    fn run(&self, name: &str, command: &mut Command) -> String {
        let mut process = Process::start(name, self.folder.path(), command);
        let status = process.await_end_within(PATIENCE);
        assert!(status.success(), "{name}: {status}\n{}", process.log());
        process.log()
    }
}

/// Lines that differ, with their places.
fn difference(native: &Trace, ours: &Trace) -> String {
    let mut text = String::new();
    let threads = native.threads.len().max(ours.threads.len());
    for thread in 0..threads {
        let lines = |trace: &Trace| trace.threads.get(thread).cloned().unwrap_or_default();
        let (native, ours) = (lines(native), lines(ours));
        for at in 0..native.len().max(ours.len()) {
            let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
            if line(&native) != line(&ours) {
                text +=
                    &format!("thread {thread}, {at}\n  - {}\n  + {}\n", line(&native), line(&ours));
            }
        }
    }
    text
}

#[test]
fn the_trace_is_what_strace_writes() {
    needs!("cc", "strace");
    let folder = Folder::new();
    let calls = Calls::new(&folder);
    let native = Trace::parse(&calls.under_strace(&["-tt", "-T"]));
    let card = Card::start(&folder);
    let file = folder.join("trace.out");
    calls.preloaded(card.session(), &file.display().to_string());
    let ours = Trace::parse(&fs::read_to_string(&file).expect("the trace"));
    assert!(native.threads[0].len() > 200, "{native:?}");
    assert_eq!(native.threads.len(), 3, "a program, its thread and its child");
    let (native, masked) = (native.masked(), ours.masked());
    assert!(
        native == masked,
        "strace (-) and the trace (+) differ:\n{}",
        difference(&native, &masked)
    );
    assert_answers(&ours);
}

/// Who answered, by the calls of the program that leave no doubt.
#[track_caller]
fn assert_answers(ours: &Trace) {
    let line = |start: &str, number: usize| {
        let all = ours.threads.iter().flatten().filter(|line| line.starts_with(start));
        all.clone().nth(number).unwrap_or_else(|| panic!("no {start}")).clone()
    };
    for (start, number, expected) in [
        ("socket(", 0, "kernel"),
        ("bind(3, ", 1, "rpc"),
        ("listen(3, ", 0, "rpc"),
        ("bind(4, ", 0, "rpc"),
        ("setsockopt(3, SOL_SOCKET, SO_KEEPALIVE", 0, "rpc"),
        ("setsockopt(3, SOL_SOCKET, SO_RCVTIMEO", 0, "kernel: placeholder"),
        ("getsockopt(3, SOL_SOCKET, SO_TYPE", 0, "ring"),
        ("getsockname(3, ", 0, "ring"),
        ("accept4(3, ", 2, "ring"),
        ("connect(4, {sa_family=AF_INET,", 0, "kernel: port not in rules"),
        ("write(4, ", 0, "kernel: connection of the kernel"),
        ("read(5, ", 0, "ring"),
        ("recvfrom(5, ", 1, "ring"),
        ("writev(5, ", 0, "ring"),
        ("sendfile(5, ", 0, "ring"),
        ("sendfile(5, 5", 0, "shim"),
        ("fcntl(5, F_GETFL", 0, "kernel: placeholder"),
        ("epoll_ctl(6, EPOLL_CTL_ADD, 5", 0, "kernel: placeholder"),
        ("shutdown(5, ", 0, "ring"),
        ("close(5)", 1, "kernel: placeholder"),
        ("close(-101)", 0, "kernel: not offloaded"),
    ] {
        let line = line(start, number);
        let suffix = trace::suffix(&line).unwrap_or_else(|| panic!("no suffix: {line}"));
        let time = suffix.strip_prefix("rpc ").and_then(|time| time.strip_suffix("us"));
        let is_rpc = time.is_some_and(|time| time.parse::<u64>().is_ok_and(|micros| micros > 0));
        let said = if is_rpc { "rpc" } else { suffix };
        assert_eq!(said, expected, "{line}");
    }
}
