//! Programs that the tests start, each ended by its own process id when the test is over.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The command under test.
pub(crate) fn mqttshim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mqttshim"))
}

/// Polls until `done`, and says whether it ever was.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Says why a test does not run here; where everything must run, that is a failure.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "with CI=true nothing may be missing: {why}"
    );
}

/// Where a program is, if it is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/local/sbin";
    let mut found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    found.find(|path| path.is_file())
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A network namespace of our own, where everything the test starts lives.
pub(crate) struct Namespace(String);

impl Namespace {
    /// Makes one, if this is root and has iproute2.
    pub(crate) fn new(what: &str) -> Option<Namespace> {
        let name = format!("mqt-{what}-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        let namespace = Namespace(name);
        let up = namespace.command("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        Some(namespace)
    }

    /// A program in it. `ip netns exec` replaces itself, so the child's id is the program's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A running mosquitto.
pub(crate) struct Broker {
    child: Child,
    _folder: TempDir,
    pub(crate) port: u16,
}

impl Broker {
    /// Starts one on a free port, on loopback or, in a namespace, on every address.
    pub(crate) fn start(namespace: Option<&Namespace>) -> Option<Broker> {
        let Some(program) = installed("mosquitto") else {
            skip("mosquitto is not installed (apt-get install mosquitto)");
            return None;
        };
        let folder = TempDir::new().unwrap();
        // A port of our own namespace is free; on the machine, one that was free a moment ago.
        let port = match namespace {
            Some(_) => 18_830,
            None => TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
        };
        let address = if namespace.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let config = folder.path().join("mosquitto.conf");
        let text = format!("listener {port} {address}\nallow_anonymous true\nuser root\n");
        std::fs::write(&config, text).unwrap();
        let mut command = match namespace {
            Some(namespace) => namespace.command(&program),
            None => Command::new(&program),
        };
        let child = command.arg("-c").arg(&config).stderr(Stdio::null()).spawn().unwrap();
        let broker = Broker { child, _folder: folder, port };
        assert!(eventually(|| broker.listens()), "mosquitto does not listen on {port}");
        Some(broker)
    }

    /// Whether a listening socket (state 0A) of its namespace has its port (proc(5), /proc/net/tcp).
    fn listens(&self) -> bool {
        let table = format!("/proc/{}/net/tcp", self.child.id());
        let local = format!(":{:04X}", self.port);
        let listens = |line: &str| {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&local) && fields[3] == "0A"
        };
        std::fs::read_to_string(table).is_ok_and(|text| text.lines().any(listens))
    }

    /// `NAME=PORT,pid=N`.
    pub(crate) fn target(&self, name: &str) -> String {
        format!("{name}={},pid={}", self.port, self.child.id())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
