//! `MQTTSHIM_TRACE` against strace itself: the same program, run natively under the one and preloaded under the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::card::clear_environment;
use mqttshim_integration::trace::{self, Trace};
use mqttshim_integration::{Card, Folder, Process, broker, compiler, needs, ports};

/// The system calls the program makes on purpose.
const CALLS: &str = "accept,accept4,bind,close,close_range,connect,creat,dup,dup2,dup3,epoll_create,\
    epoll_create1,epoll_ctl,epoll_pwait,epoll_pwait2,epoll_wait,eventfd2,fcntl,getpeername,\
    getsockname,getsockopt,inotify_init,inotify_init1,ioctl,listen,memfd_create,openat,pipe2,poll,\
    ppoll,preadv2,pselect6,pwritev2,read,readv,recvfrom,recvmmsg,recvmsg,sendfile,sendmmsg,sendmsg,\
    sendto,setsockopt,shutdown,signalfd4,socket,socketpair,splice,timerfd_create,write,writev";
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
    let opened = |line: &&String| line.starts_with("openat(");
    let others =
        ours.threads.iter().flatten().filter(opened).find(|line| !line.ends_with("> {kernel}"));
    assert_eq!(others, None, "files are the kernel's");
    for (start, number, expected) in [
        ("socket(", 0, "kernel"),
        ("epoll_wait(7", 0, "kernel: epoll"),
        ("poll(NULL", 0, "kernel"),
        ("bind(3, ", 1, "rpc"),
        ("listen(3, ", 0, "rpc"),
        ("bind(4, ", 0, "rpc"),
        ("setsockopt(3, SOL_SOCKET, SO_KEEPALIVE", 0, "rpc"),
        // A listener whose time-outs change asks for those of what it accepts.
        ("setsockopt(3, SOL_SOCKET, SO_RCVTIMEO", 0, "rpc"),
        ("getsockopt(3, SOL_SOCKET, SO_RCVTIMEO", 0, "kernel: placeholder"),
        ("getsockopt(3, SOL_SOCKET, SO_TYPE", 0, "ring"),
        ("getsockname(3, ", 0, "ring"),
        ("accept4(3, ", 2, "rpc"),
        ("connect(4, {sa_family=AF_INET,", 0, "kernel: port not in rules"),
        ("write(4, \"\\0\\1MQTT", 0, "kernel: connection of the kernel"),
        ("read(5, ", 0, "ring"),
        ("recvfrom(5, ", 1, "ring"),
        ("writev(5, ", 0, "ring"),
        ("sendfile(5, ", 0, "ring"),
        ("sendfile(5, 5", 0, "shim"),
        ("fcntl(5, F_GETFL", 0, "kernel: placeholder"),
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

/// Calls and errors of a call, by a table of `strace -c`.
#[track_caller]
fn counted<'a>(table: &'a str, call: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.ends_with(&format!(" {call}")));
    let row = row.unwrap_or_else(|| panic!("no {call} in\n{table}"));
    row.split_whitespace().skip(3).collect()
}

#[test]
fn the_summary_is_the_table_strace_makes() {
    needs!("cc", "strace");
    let folder = Folder::new();
    let calls = Calls::new(&folder);
    let native = calls.under_strace(&["-c", "-w"]);
    let card = Card::start(&folder);
    let file = folder.join("trace.out");
    calls.preloaded(card.session(), &format!("{},summary", file.display()));
    let ours = fs::read_to_string(&file).expect("the trace");
    let first = ours.lines().next().expect("a table");
    assert!(first.starts_with("System call usage summary of process "), "{ours}");
    let heads = |table: &str, skipped| -> Vec<String> {
        table.lines().skip(skipped).take(2).map(str::to_owned).collect()
    };
    assert_eq!(heads(&ours, 1), heads(&native, 0));
    // What the child does is not in its parent's table, and the child ends without one.
    for call in ["bind", "listen", "splice", "setsockopt", "sendmmsg", "getpeername", "epoll_ctl"] {
        assert_eq!(counted(&ours, call), counted(&native, call));
    }
    // Columns end where strace's end.
    let row = ours.lines().find(|line| line.ends_with(" listen")).expect("a row");
    let ends = |text: &str| text.rfind(' ');
    let native_row = native.lines().find(|line| line.ends_with(" listen")).expect("a row");
    assert_eq!(ends(row), ends(native_row));
    assert!(
        ours.lines()
            .last()
            .is_some_and(|line| line.starts_with("100.00 ") && line.ends_with(" total"))
    );
}

/// Runs a small program preloaded, without a card.
#[track_caller]
fn survive(folder: &Folder, value: &str, arguments: &[&str]) -> String {
    let program = compiler::compile("programs/survive.c", folder.path(), &[]);
    let mut command = Command::new(program);
    clear_environment(&mut command);
    broker::preload(&mut command, &folder.join("no.sock"), ports::free());
    command.env("MQTTSHIM_TRACE", value).args(arguments);
    let mut process = Process::start("survive", folder.path(), &mut command);
    let status = process.await_end_within(PATIENCE);
    assert!(status.success(), "{status}\n{}", process.log());
    process.log()
}

#[test]
fn threads_forks_and_signals_lose_no_line_and_mix_none() {
    needs!("cc");
    let folder = Folder::new();
    let file = folder.join("trace.out");
    survive(&folder, &file.display().to_string(), &["storm"]);
    let text = fs::read_to_string(&file).expect("the trace");
    // Reading asserts the shape of each line's beginning.
    let trace = Trace::parse(&text);
    let lines = || trace.threads.iter().flatten();
    let count = |start: &str| lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("close(-1000)"), 4 * 300);
    assert_eq!(count("close(-2000)"), 10);
    assert!(count("close(-7)") > 0);
    for line in lines().filter(|line| line.starts_with("close(")) {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(") = -1 EBADF (Bad file descriptor) <0."), "{line}");
        assert!(line.ends_with("> {kernel: not offloaded}"), "{line}");
    }
    assert!(!text.contains("lost"), "{text}");
}

#[test]
fn a_trace_closed_behind_its_back_is_opened_again_and_harms_no_file() {
    needs!("cc");
    let folder = Folder::new();
    let (file, precious) = (folder.join("trace.out"), folder.join("precious"));
    let path = precious.display().to_string();
    survive(&folder, &file.display().to_string(), &["closed", &path]);
    let text = fs::read_to_string(&file).expect("the trace");
    assert_eq!(text.matches("close(-2000)").count(), 3, "{text}");
    assert_eq!(fs::read_to_string(precious).expect("the program's file"), "precious");
}

#[test]
fn a_full_disk_and_a_closed_pipe_harm_nobody() {
    needs!("cc");
    let folder = Folder::new();
    let said = survive(&folder, "/dev/full", &["storm"]);
    assert!(!said.contains("warning"), "{said}");
    let program = folder.join("survive");
    let mut command = Command::new("sh");
    clear_environment(&mut command);
    broker::preload(&mut command, &folder.join("no.sock"), ports::free());
    // Standard error is a pipe that nobody reads; the status is the program's.
    let script =
        format!("{{ {} storm 2>&1 >/dev/null; echo $? >status; }} | true", program.display());
    command.env("MQTTSHIM_TRACE", "1").args(["-c", &script]).current_dir(folder.path());
    Process::start("piped", folder.path(), &mut command).await_end_within(PATIENCE);
    let status = fs::read_to_string(folder.join("status")).expect("the script wrote it");
    assert_eq!(status.trim(), "0");
}

#[test]
fn a_trace_that_cannot_be_written_is_one_warning() {
    needs!("cc");
    let folder = Folder::new();
    let said = survive(&folder, "/nonexistent/trace", &["storm"]);
    assert_eq!(said.matches("warning").count(), 1, "{said}");
    let expected = "MQTTSHIM_TRACE=/nonexistent/trace: No such file or directory (os error 2); this program \
        runs untraced: name a file it may write, or 1";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn on_standard_error_a_process_is_named_once_there_are_several() {
    needs!("cc");
    let folder = Folder::new();
    let said = survive(&folder, "1", &["closed", &folder.join("p").display().to_string()]);
    assert!(!said.contains("[pid "), "{said}");
    assert!(said.contains(" close(-2000) "), "{said}");
    let said = survive(&folder, "1", &["storm"]);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("close(-1000)")).collect();
    assert!(lines.len() > 1000 && lines.iter().all(|line| line.starts_with("[pid ")), "{said}");
}
