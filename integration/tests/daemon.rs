//! mosquitto as distributions run it: started as root, in the background, as its own user, reloading at SIGHUP.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mqttshim_integration::{Broker, BrokerSetup, Card, Client, Folder, Login, Message, Process};
use mqttshim_integration::{broker, needs, ports, procfs, wait};
use rustix::process::{Pid, Signal, kill_process};

/// A broker in the background, which is nobody's child: ended by the process id it wrote.
struct Daemon {
    pid: u32,
}

impl Daemon {
    /// Starts `mosquitto -d` as root, and waits for its pid file.
    #[track_caller]
    fn start(folder: &Folder, session: Option<&Path>, port: u16, more: &str) -> Daemon {
        // The broker writes its pid file and log after it gave up root.
        let run = folder.join("run");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
        let pid_file = run.join("mosquitto.pid");
        let log = run.join("mosquitto.log");
        let more = format!(
            "user mosquitto\npid_file {}\nlog_dest file {}\n{more}",
            pid_file.display(),
            log.display()
        );
        let config = folder.write("daemon.conf", &broker::config(port, &more));
        let mut command = broker::command(session, port);
        let mut starter =
            Process::start("starter", folder.path(), command.args(["-d", "-c"]).arg(config));
        assert!(starter.await_end().success(), "{}", starter.log());
        let pid = wait::until("the daemon writes its pid", || {
            std::fs::read_to_string(&pid_file).ok()?.trim().parse().ok()
        });
        Daemon { pid }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    #[track_caller]
    fn stop(self) {
        self.signal(Signal::TERM);
        wait::until("the daemon ends", || (!procfs::is_alive(self.pid)).then_some(()));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if procfs::is_alive(self.pid) {
            self.signal(Signal::KILL);
        }
    }
}

/// Waits until the broker answers.
#[track_caller]
fn await_service(port: u16) {
    wait::until("the daemon answers", || {
        let mut client = Client::begin(port, &Login::new("probe")).ok()?;
        client.login().ok()
    });
}

#[test]
fn a_daemon_that_drops_root_is_served_and_reloads_at_sighup() {
    needs!("mosquitto");
    if !needs::is_root() {
        return;
    }
    let folder = Folder::new();
    let card = Card::start(&folder);
    let port = ports::free();
    let daemon = Daemon::start(&folder, Some(card.session()), port, "");
    await_service(port);
    let uid = procfs::effective_uid(daemon.pid).unwrap();
    assert_ne!(uid, 0, "it gave up root");
    // It is nobody's child any more: init's, or that of whoever reaps here.
    let mut subscriber = Client::new(port, "subscriber");
    assert_eq!(subscriber.subscribe("daemon/#", 1), 1);
    subscriber.ping().unwrap();
    let mut publisher = Client::new(port, "publisher");
    publisher.publish(&Message::new("daemon/fast", "card"));
    publisher.publish(&Message::new("daemon/slow", "broker").qos(1));
    assert_eq!(subscriber.message().payload, b"card");
    assert_eq!(subscriber.message().payload, b"broker");
    card.await_metrics("the card distributed one of them", |it| it.by_card() >= 1.0);
    assert_reload_shuts_anonymous_clients_out(&folder, daemon, port);
    assert!(ports_becomes_free(port), "the port is free after SIGTERM");
}

/// Changes the configuration, sends SIGHUP, and waits for its effect. Then stops the daemon.
#[track_caller]
fn assert_reload_shuts_anonymous_clients_out(folder: &Folder, daemon: Daemon, port: u16) {
    let config = folder.join("daemon.conf");
    let text = std::fs::read_to_string(&config).unwrap();
    folder.write("daemon.conf", &text.replace("allow_anonymous true", "allow_anonymous false"));
    daemon.signal(Signal::HUP);
    wait::until("anonymous clients are refused", || {
        let mut client = Client::begin(port, &Login::new("anonymous")).ok()?;
        let refused = client.login().err()?;
        refused.to_string().contains("CONNACK says 5").then_some(())
    });
    folder.write("daemon.conf", &text);
    daemon.signal(Signal::HUP);
    await_service(port);
    daemon.stop();
}

/// Whether the next daemon could listen there: as it does, beside connections in TIME_WAIT.
fn ports_becomes_free(port: u16) -> bool {
    let listen = || std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).ok();
    wait::poll(wait::PATIENCE, listen).is_some()
}

#[test]
fn a_daemon_without_us_behaves_the_same() {
    needs!("mosquitto");
    if !needs::is_root() {
        return;
    }
    let folder = Folder::new();
    let port = ports::free();
    let daemon = Daemon::start(&folder, None, port, "");
    await_service(port);
    assert_reload_shuts_anonymous_clients_out(&folder, daemon, port);
}

#[test]
fn a_reload_in_the_foreground_keeps_the_connections() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let setup = BrokerSetup { session: Some(card.session()), ..BrokerSetup::default() };
    let mut broker = Broker::start(&folder, &setup);
    let mut client = Client::new(broker.port(), "guest");
    client.subscribe("kept", 0);
    broker.reload();
    broker.process.await_log("Reloading config");
    client.publish(&Message::new("kept", "here"));
    assert_eq!(client.message().payload, b"here");
    Client::new(broker.port(), "another").ping().unwrap();
    assert!(broker.process.terminate().success());
}
