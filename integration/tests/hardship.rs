//! What a machine may do to us: a full disk, a clock that jumps, crowds, other versions, processes that do not go away.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mqttshim_channel::CommChannel;
use mqttshim_channel::emulated::Listener;
use mqttshim_integration::metrics::Metrics;
use mqttshim_integration::{Agent, Broker, BrokerSetup, Card, Client, Folder, Message, Process};
use mqttshim_integration::{broker, compiler, needs, network, paths, ports, procfs, wait};
use mqttshim_schema::{Hello, Message as Said};
use rustix::process::{Pid, Signal};

/// A process whose standard output and error lead to a full disk.
struct OnFullDisk(Child);

impl OnFullDisk {
    fn start(command: &mut Command) -> OnFullDisk {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let command = command.stdin(Stdio::null()).stdout(full()).stderr(full());
        OnFullDisk(command.spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for OnFullDisk {
    fn drop(&mut self) {
        // It may have ended, which its test has seen.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn built(name: &str) -> Command {
    let mut command = Command::new(paths::built(name));
    command.env_remove("LD_PRELOAD").env_remove("RUST_LOG").arg("run");
    command
}

#[test]
fn logs_that_no_disk_takes_hurt_nobody() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (channel, metrics, port) = (folder.join("card.sock"), ports::free(), ports::free());
    let channel = format!("emulated:{}", channel.display());
    let session = folder.join("agent.sock");
    let mut card = built("dpu-server");
    card.args(["--trust", "suback", "--log", "trace", "--channel", &channel]);
    card.args(network::card_arguments(folder.path()));
    let mut card = OnFullDisk::start(card.args(["--metrics", &format!("127.0.0.1:{metrics}")]));
    let mut agent = built("mqttshim-agent");
    agent.args(["--log", "trace", "--channel", &channel, "--session"]).arg(&session);
    let mut agent = OnFullDisk::start(&mut agent);
    wait::until("the card publishes metrics", || Metrics::read(metrics).ok());
    wait::until("programs find the agent", || session.exists().then_some(()));
    let config = folder.write("broker.conf", &broker::config(port, ""));
    let mut command = broker::command(Some(&session), port);
    let mut broker = OnFullDisk::start(command.env("MQTTSHIM_LOG", "debug").arg("-c").arg(config));
    for _ in 0..50 {
        let mut client = wait::until("the broker serves", || {
            let mut client =
                Client::begin(port, &mqttshim_integration::Login::new("guest")).ok()?;
            client.login().ok().map(|_| client)
        });
        assert_eq!(client.subscribe("full/disk", 0), 0);
        client.ping().unwrap();
        client.publish(&Message::new("full/disk", "still here"));
        assert_eq!(client.message().payload, b"still here");
    }
    assert!(card.is_running() && agent.is_running() && broker.is_running());
    wait::until("the card distributed some", || {
        Metrics::read(metrics).ok().filter(|it| it.by_card() > 0.0)
    });
}

/// libfaketime's library for programs with threads.
fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|it| it.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

/// Variables that give a process the clock in `file`: only that of the day, as when somebody sets it.
fn clock(file: &Path) -> [(&'static str, String); 3] {
    [
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ]
}

#[test]
fn a_clock_that_jumps_by_days_is_noticed_only_in_the_logs() {
    needs!("mosquitto");
    let Some(library) = faketime() else {
        let _ = needs::skip("libfaketime is not installed; run `make deps`");
        return;
    };
    let folder = Folder::new();
    let file = folder.write("clock", "+0d\n");
    let (session, metrics) = (folder.join("session.sock"), ports::free());
    let mut command = built("dpu-server");
    command.envs(clock(&file)).env("LD_PRELOAD", &library);
    command.args(["--trust", "suback", "--metrics", &format!("127.0.0.1:{metrics}"), "--session"]);
    let mut card = Process::start("dpu-server", folder.path(), command.arg(&session));
    card.await_log("serving sockets_max=");
    let both = format!("{}:{}", paths::library().display(), library.display());
    let mut environment = clock(&file).to_vec();
    environment.push(("LD_PRELOAD", both));
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let start = |name: &str| {
        let (session, environment) = (Some(session.as_path()), environment.as_slice());
        let setup =
            BrokerSetup { session, environment, name: Some(name), ..BrokerSetup::default() };
        Broker::start(&folder, &setup)
    };
    let broker = start("broker");
    let mut witness = Client::new(broker.port(), "witness");
    assert_eq!(witness.subscribe("time/#", 1), 1);
    for (number, jump) in ["+3d", "-3d", "+400d", "+0d"].into_iter().enumerate() {
        fs::write(&file, format!("{jump}\n")).unwrap();
        for qos in [0, 1] {
            let mut publisher = Client::new(broker.port(), "publisher");
            publisher.publish(&Message::new("time/flies", jump).qos(qos));
            assert_eq!(witness.message().payload, jump.as_bytes());
        }
        witness.ping().unwrap();
        drop(start(&format!("broker-{number}")));
    }
    let log = card.log();
    let days: BTreeSet<&str> = log.lines().filter_map(|line| line.get(..10)).collect();
    assert!(days.len() >= 4, "the clock did not jump: {days:?}");
}

#[test]
fn two_hundred_sessions_are_served_and_one_that_dies_is_nobody_elses_business() {
    needs!("cc");
    const SESSIONS: usize = 200;
    let folder = Folder::new();
    let card = Card::start(&folder);
    let program = compiler::compile("programs/server.c", folder.path(), &[]);
    let idle = (procfs::descriptors(card.pid()), procfs::resident_bytes(card.pid()));
    let mut servers: Vec<(Process, TcpStream)> = Vec::new();
    for number in 0..SESSIONS {
        let port = ports::free();
        let mut command = Command::new(&program);
        broker::preload(&mut command, card.session(), port);
        command.args(["read", &port.to_string()]);
        let name = format!("server-{number}");
        let mut server = Process::start(&name, folder.path(), &mut command);
        server.await_log("listening");
        servers.push((server, TcpStream::connect((network::host(), port)).unwrap()));
    }
    let say = |servers: &mut [(Process, TcpStream)], word: &str| {
        for (server, client) in servers {
            client.write_all(word.as_bytes()).unwrap();
            server.await_log(&format!("read {}", word.len()));
        }
    };
    say(&mut servers, "hello");
    let open = |it: &Metrics| it.sum("mqttshim_session_state", &["state=\"open\""]);
    card.await_metrics("all are served", |it| (open(it) - SESSIONS as f64).abs() < 0.5);
    let busy = (procfs::descriptors(card.pid()), procfs::resident_bytes(card.pid()));
    let (mut victim, _client) = servers.swap_remove(SESSIONS / 2);
    victim.kill();
    card.await_metrics("one ended", |it| (open(it) - SESSIONS as f64 + 1.0).abs() < 0.5);
    say(&mut servers, "still here");
    drop(servers);
    card.await_metrics("all ended", |it| open(it) < 0.5);
    let descriptors = wait::until("descriptors are given back", || {
        let now = procfs::descriptors(card.pid());
        (now <= idle.0).then_some(now)
    });
    let rest = procfs::resident_bytes(card.pid());
    eprintln!(
        "{SESSIONS} sessions: dpu-server {} → {} → {descriptors} descriptors, {} → {} → {rest} bytes",
        idle.0, busy.0, idle.1, busy.1
    );
    assert!(rest <= idle.1 + 16 * 1024 * 1024, "dpu-server kept {} bytes", rest - idle.1);
    // A killed process lets go of its descriptors in any order: a name may take one more look.
    wait::until("no name of a listener is left", || {
        let names = fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.file_name());
        let is_listener = |it: std::ffi::OsString| it.to_string_lossy().starts_with("listener-");
        (!names.into_iter().any(is_listener)).then_some(())
    });
}

/// A process that is killed at the end.
struct Killed(u32);

impl Killed {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0).unwrap()).unwrap();
        // It may have ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// What the next server on the port says that a killed one left its child on; `session`: both are on the card.
fn next_server(folder: &Folder, session: Option<&Path>, what_is_kept: &str) -> String {
    let port = ports::free();
    let start = |name: &str, source: &str, arguments: &[&str]| {
        let mut command = Command::new(compiler::compile(source, folder.path(), &[]));
        if let Some(session) = session {
            broker::preload(&mut command, session, port);
        }
        command.args(arguments);
        Process::start(name, folder.path(), &mut command)
    };
    let at = port.to_string();
    let mut first = start("first", "programs/linger.c", &[what_is_kept, &at]);
    first.await_log("listening");
    let _client = TcpStream::connect((network::host(), port)).unwrap();
    let child = wait::until("the child says its id", || {
        let log = first.log();
        log.lines().find_map(|line| line.strip_prefix("child ")?.parse().ok())
    });
    let child = Killed(child);
    child.signal(Signal::STOP);
    if what_is_kept == "nothing" {
        // And one whose listener's holder is only stopped.
        first.signal(Signal::STOP);
        let mut refused = start("refused", "programs/server.c", &["read", &at]);
        refused.await_log("no listener: EADDRINUSE");
    }
    first.kill();
    let mut next = start("next", "programs/server.c", &["read", &at]);
    wait::until("the next server knows", || {
        let log = next.log();
        let is_told = |line: &&str| *line == "listening" || line.starts_with("no listener");
        let told = log.lines().find(is_told).map(str::to_owned);
        assert!(told.is_some() || next.is_running(), "{log}");
        told
    })
}

#[test]
fn a_port_is_free_again_when_the_kernel_has_it_free_though_a_stopped_child_shares_the_session() {
    needs!("cc");
    let folder = Folder::new();
    let card = Card::start(&folder);
    for what_is_kept in ["listener", "connection", "nothing"] {
        let kernel = next_server(&folder, None, what_is_kept);
        let ours = next_server(&folder, Some(card.session()), what_is_kept);
        assert_eq!(ours, kernel, "the child keeps {what_is_kept}");
    }
}

/// A card of the next version but one.
fn answer_as_stranger(channel: &mut dyn CommChannel) {
    let hello = Said::Hello(Hello {
        version_min: 7,
        version_max: 9,
        max_message_bytes: 4080,
        window_bytes: 65_536,
        layout_min: 0,
        layout_max: 0,
        program: "dpu-server 9.0.0",
    });
    let mut bytes = Vec::new();
    mqttshim_schema::encode(&hello, &mut bytes).unwrap();
    // The agent may have hung up.
    let _ = channel.send(&bytes);
}

#[test]
fn a_card_of_another_version_leaves_the_broker_to_the_kernel_and_says_which_side_to_upgrade() {
    needs!("mosquitto");
    let folder = Folder::new();
    let path = folder.join("channel.sock");
    let listener = Listener::bind(&path).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = Vec::new();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                match listener.accept() {
                    Ok(Some(mut channel)) => {
                        answer_as_stranger(&mut channel);
                        kept.push(channel);
                    }
                    _ => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        let over = scope_guard(&is_over);
        let mut command = built("mqttshim-agent");
        let session = folder.join("agent.sock");
        command.args(["--channel", &format!("emulated:{}", path.display()), "--session"]);
        let mut agent = Process::start("mqttshim-agent", folder.path(), command.arg(&session));
        agent.await_log("do not understand each other");
        let setup = BrokerSetup { session: Some(&session), ..BrokerSetup::default() };
        let mut broker = Broker::launch(&folder, &setup);
        broker.await_service();
        let mut client = Client::new(broker.port(), "guest");
        client.subscribe("version", 1);
        client.publish(&Message::new("version", "lost nothing").qos(1));
        assert_eq!(client.message().payload, b"lost nothing");
        let log = broker.process.log();
        assert!(log.contains("stays with the kernel") && log.contains("upgrade"), "{log}");
        let said = agent.log().matches("do not understand each other").count();
        assert_eq!(said, 1, "once, however often it tries: {}", agent.log());
        drop(over);
    });
}

/// Sets a flag however the scope is left, so that the thread beside it ends.
fn scope_guard(flag: &std::sync::atomic::AtomicBool) -> impl Drop + '_ {
    struct Guard<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    Guard(flag)
}

#[test]
fn an_agent_that_is_stopped_longer_than_the_lease_serves_again_when_it_goes_on() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (mut agent, card) = Agent::start(&folder);
    let mut broker = Broker::on_card(&folder, agent.session());
    let mut client = Client::new(broker.port(), "guest");
    agent.process.signal(Signal::STOP);
    wait::until("the card gives it up", || client.ping().err());
    agent.process.signal(Signal::CONT);
    broker.await_service();
    card.await_metrics("it is the card's", |it| {
        (it.sum("mqttshim_session_state", &["state=\"open\""]) - 1.0).abs() < 0.5
    });
}
