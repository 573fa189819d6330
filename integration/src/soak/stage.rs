//! One stage: everything is started, hurt and looked at.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ledger::Ledger;
use super::load::Load;
use super::schedule::{Fault, Schedule, Victim};
use super::{garbage, probe};
use crate::process::Process;
use crate::{Agent, Broker, BrokerSetup, Card, Client, Folder, Login};
use crate::{broker, compiler, ports, procfs, wait};

/// Sockets a session may have: so few that slots which are not given back run out within a stage.
const SOCKETS_MAX: usize = 64;
/// Connections that must be possible at the end, all at once: all but listeners and what is on its way out.
const SOCKETS_AT_END: usize = 56;
/// How long the broker's CPU time is looked at.
const STRETCH: Duration = Duration::from_millis(300);
/// Time for a broker to see what happened to its connections.
const SETTLING: Duration = Duration::from_millis(80);
/// CPU time above the idle figure that is no spinning: a tenth of a stretch.
const EXCESS_MAX: Duration = Duration::from_millis(30);
/// Between two looks at the broker at rest.
const FAULTS_PER_LOOK: usize = 10;
/// What a broker's memory may grow by within a stage: a send ring used all over, and its own heap.
const GROWTH_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Time for the names of listeners that are gone to go: the agent looks once a second.
const NAMES_SETTLE: Duration = Duration::from_secs(5);

/// Plays one schedule.
///
/// # Panics
/// With the fault that was played, if anything is not as it must be.
#[track_caller]
pub fn play(schedule: &Schedule) -> Ledger {
    let folder = Folder::new();
    let mut stage = Stage::start(&folder, schedule.is_split);
    for (number, &(after, fault)) in schedule.faults.iter().enumerate() {
        std::thread::sleep(after);
        stage.play(number, fault);
    }
    stage.end()
}

struct Stage<'a> {
    folder: &'a Folder,
    agent: Option<Agent>,
    card: Card,
    broker: Broker,
    hostile: Hostile,
    load: Option<Load>,
    probes: u64,
    /// The broker's CPU time in one stretch of nothing.
    idle: Duration,
    /// Its descriptors, its memory.
    before: (usize, u64),
    ledger: Ledger,
}

impl<'a> Stage<'a> {
    #[track_caller]
    fn start(folder: &'a Folder, is_split: bool) -> Stage<'a> {
        let config = folder.write("card.toml", &format!("[limits]\nsockets_max = {SOCKETS_MAX}\n"));
        let config = config.to_string_lossy();
        let slots = SOCKETS_MAX.to_string();
        let (agent, card) = match is_split {
            true => {
                let (agent, card) =
                    Agent::start_with(folder, &["--sockets-max", &slots], &["--config", &config]);
                (Some(agent), card)
            }
            false => (None, Card::start_with(folder, &["--config", &config])),
        };
        let session = agent.as_ref().map_or(card.session(), Agent::session);
        let broker = Broker::on_card(folder, session);
        let hostile = Hostile::start(folder, session);
        let mut stage = Stage {
            folder,
            agent,
            card,
            broker,
            hostile,
            load: None,
            probes: 0,
            idle: Duration::ZERO,
            before: (0, 0),
            ledger: Ledger::default(),
        };
        stage.warm_up();
        stage
    }

    /// A dead session stays until the next but one: what the broker holds is measured from there.
    #[track_caller]
    fn warm_up(&mut self) {
        for _ in 0..2 {
            self.launch(Victim::Card);
            self.launch(Victim::Agent);
            self.card.await_ready();
            self.broker.await_service();
        }
        self.hostile.renew();
        self.idle = procfs::cpu_during(self.broker.pid(), STRETCH);
        self.before = self.held_by_broker();
        self.load = Some(Load::start(self.folder, self.broker.port()));
    }

    #[track_caller]
    fn play(&mut self, number: usize, fault: Fault) {
        let pids = self.pids();
        let since = self.strike(fault);
        if let Some(status) = self.broker.process.poll() {
            assert!(fault.may_end_broker(), "{fault}: the broker ended: {status}");
            if let Fault::Ruined(_) = fault {
                self.ledger.brokers_ruined += 1;
            }
            self.launch(Victim::Broker);
        }
        let port = self.broker.port();
        let back = probe::await_service(port, since, &mut self.probes);
        let back =
            back.unwrap_or_else(|| panic!("fault {number}, {fault}: service never came back"));
        self.ledger.recovered(fault.kind(), back);
        if garbage::mapped(self.broker.pid()) == 0 {
            // Started before the card was back, it stays with the kernel: of no use for what follows.
            assert!(matches!(fault, Fault::KillBoth(..)), "{fault}: the broker is not on the card");
            self.card.await_ready();
            self.launch(Victim::Broker);
            self.broker.process.await_log("is served by the card");
            self.broker.await_service();
        }
        if !fault.may_end_broker() {
            assert!(self.broker.process.is_running(), "{fault}: the broker is gone");
        }
        if let Fault::Hostile(_) = fault {
            assert_eq!(self.pids(), pids, "{fault}: somebody else died of it");
        }
        self.card.await_ready();
        if let Some(load) = &mut self.load {
            load.refill();
        }
        if number % FAULTS_PER_LOOK == FAULTS_PER_LOOK - 1 {
            self.look_at_rest(fault);
        }
    }

    /// Does it, and repairs it. Returns when the repair began to work.
    #[track_caller]
    fn strike(&mut self, fault: Fault) -> Instant {
        match fault {
            Fault::Kill(victim, gap) => {
                self.process(victim).kill();
                self.wait_without(victim, gap, fault);
                self.launch(victim)
            }
            Fault::KillBoth(first, second, gap) => {
                self.process(first).kill();
                std::thread::sleep(gap);
                self.process(second).kill();
                self.launch(second);
                self.launch(first)
            }
            Fault::Stop(victim, length) => {
                self.process(victim).signal(Signal::STOP);
                std::thread::sleep(length);
                self.process(victim).signal(Signal::CONT);
                Instant::now()
            }
            Fault::Hostile(seed) => self.ruin_another(seed),
            Fault::Ruined(seed) => {
                // It may have died of an earlier word already.
                let _ = garbage::spread(self.broker.pid(), seed, false);
                std::thread::sleep(Duration::from_millis(seed % 100));
                self.launch(Victim::Agent)
            }
        }
    }

    /// A process is missing. If that is the card, the broker must be at rest.
    #[track_caller]
    fn wait_without(&mut self, victim: Victim, gap: Duration, fault: Fault) {
        let is_looked_at =
            gap > STRETCH + SETTLING && [Victim::Card, Victim::Agent].contains(&victim);
        if is_looked_at {
            std::thread::sleep(SETTLING);
            self.look_at_cpu(fault);
        } else {
            std::thread::sleep(gap);
        }
    }

    /// Garbage in another program's session, with a client of its own, who must be the only one to notice.
    #[track_caller]
    fn ruin_another(&mut self, seed: u64) -> Instant {
        self.hostile.renew();
        let witness = Client::begin(self.broker.port(), &Login::new("witness"));
        let mut witness = witness.expect("the broker was served a moment ago");
        witness.login().expect("the broker was served a moment ago");
        garbage::spread(self.hostile.pid(), seed, true).expect("it has just been served");
        let since = Instant::now();
        self.hostile.stir();
        for _ in 0..3 {
            witness.ping().expect("another program's memory is not this client's business");
        }
        self.hostile.end();
        witness.disconnect();
        since
    }

    fn process(&mut self, victim: Victim) -> &mut Process {
        match victim {
            Victim::Broker => &mut self.broker.process,
            Victim::Card => &mut self.card.process,
            Victim::Agent => {
                self.agent.as_mut().map_or(&mut self.card.process, |agent| &mut agent.process)
            }
            Victim::Client => self.load.as_mut().expect("clients run with the faults").subscriber(),
        }
    }

    /// Starts it again, without waiting for it.
    #[track_caller]
    fn launch(&mut self, victim: Victim) -> Instant {
        let start = Instant::now();
        match (victim, &mut self.agent) {
            (Victim::Card, _) | (Victim::Agent, None) => self.card.launch_again(),
            (Victim::Agent, Some(agent)) => agent.launch_again(),
            (Victim::Broker, agent) => {
                self.broker.process.kill();
                let session = agent.as_ref().map_or(self.card.session(), Agent::session);
                let port = Some(self.broker.port());
                let setup = BrokerSetup { session: Some(session), port, ..BrokerSetup::default() };
                self.broker = Broker::launch(self.folder, &setup);
            }
            (Victim::Client, _) => {}
        }
        start
    }

    fn pids(&self) -> [u32; 3] {
        [
            self.card.pid(),
            self.agent.as_ref().map_or(0, |agent| agent.process.pid()),
            self.broker.pid(),
        ]
    }

    /// Everybody is there and says nothing.
    #[track_caller]
    fn look_at_rest(&mut self, fault: Fault) {
        let Some(load) = &self.load else { return };
        load.pause(true);
        std::thread::sleep(SETTLING);
        self.look_at_cpu(fault);
        if let Some(load) = &self.load {
            load.pause(false);
        }
    }

    #[track_caller]
    fn look_at_cpu(&mut self, fault: Fault) {
        let spent = procfs::cpu_during(self.broker.pid(), STRETCH);
        let excess = spent.saturating_sub(self.idle);
        self.ledger.idle_looks += 1;
        self.ledger.idle_excess_max = self.ledger.idle_excess_max.max(excess);
        assert!(excess <= EXCESS_MAX, "{fault}: the broker took {spent:?} of {STRETCH:?} at rest");
    }

    fn held_by_broker(&self) -> (usize, u64) {
        let pid = self.broker.pid();
        (procfs::descriptors(pid), procfs::resident_bytes(pid))
    }

    /// Who holds the memory of sessions, and their doorbells: the process with the agent.
    fn agent_pid(&self) -> u32 {
        self.agent.as_ref().map_or(self.card.pid(), |agent| agent.process.pid())
    }

    /// The end: nothing may be left of what came and went.
    #[track_caller]
    fn end(mut self) -> Ledger {
        if let Some(load) = self.load.take() {
            (self.ledger.messages, self.ledger.visits) = load.stop();
        }
        self.hostile.end();
        self.fill_every_slot();
        self.card
            .await_metrics("no connection is left", |it| it.sum("mqttshim_connections", &[]) < 0.5);
        let after = self.settled_broker();
        let agents = self.settled(self.agent_pid());
        let cards = self.settled(self.card.pid());
        let maps = garbage::mapped(self.broker.pid());
        // A program that died a moment ago may have held its listener longer than its session; the agent looks once a second.
        wait::poll(NAMES_SETTLE, || (self.names().len() == 1).then_some(()));
        let files = self.names();
        // Fresh processes hold what they need, and no more.
        self.launch(Victim::Card);
        self.launch(Victim::Agent);
        self.card.await_ready();
        self.broker.await_service();
        self.card
            .await_metrics("no connection is left", |it| it.sum("mqttshim_connections", &[]) < 0.5);
        let fresh_agents = self.settled(self.agent_pid());
        let fresh_cards = self.settled(self.card.pid());
        let grown = after.1.saturating_sub(self.before.1);
        self.ledger.rests.push(format!(
            "left: broker {} → {} descriptors, {grown} bytes more, {maps} sessions mapped; agent {fresh_agents:?} fresh, {agents:?} used; card {fresh_cards:?} fresh, {cards:?} used; {files:?}",
            self.before.0, after.0,
        ));
        assert!(
            after.0 <= self.before.0,
            "descriptors of the broker: {:?} → {after:?}",
            self.before
        );
        assert!(grown <= GROWTH_BYTES_MAX, "the broker grew by {grown} bytes");
        assert!(maps <= 2, "the broker has {maps} sessions mapped");
        assert_eq!(agents.0, fresh_agents.0, "descriptors of the agent");
        assert_eq!(cards.0, fresh_cards.0, "descriptors of the card");
        assert_eq!(files.len(), 1, "names of listeners that are gone: {files:?}");
        self.ledger
    }

    /// As many connections at once as there are slots: none is taken by what is long gone.
    #[track_caller]
    fn fill_every_slot(&mut self) {
        let port = self.broker.port();
        self.card
            .await_metrics("the clients are gone", |it| it.sum("mqttshim_connections", &[]) < 0.5);
        let all = (0..SOCKETS_AT_END)
            .map(|at| Client::connect(port, &Login::new(&format!("slot-{at}"))).0);
        let mut all: Vec<Client> = all.collect();
        for client in &mut all {
            client.ping().expect("every one of them is served");
        }
        self.card.await_metrics("they are the card's", |it| {
            it.sum("mqttshim_connections", &[]) > SOCKETS_AT_END as f64 - 0.5
        });
    }

    fn settled_broker(&self) -> (usize, u64) {
        self.settled(self.broker.pid())
    }

    /// Descriptors and memory of a process, once two looks say the same.
    fn settled(&self, pid: u32) -> (usize, u64) {
        let mut last = 0;
        wait::until("descriptors are settled", || {
            let now = procfs::descriptors(pid);
            let is_same = std::mem::replace(&mut last, now) == now;
            std::thread::sleep(Duration::from_millis(50));
            is_same.then(|| (now, procfs::resident_bytes(pid)))
        })
    }

    /// The names of listeners in the session folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("our own folder");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with("listener-")).collect()
    }
}

/// A program with a session of its own and a client, in the hands of somebody who means harm.
struct Hostile {
    command: Box<dyn Fn(u16) -> Command>,
    folder: std::path::PathBuf,
    process: Option<(Process, TcpStream)>,
}

impl Hostile {
    #[track_caller]
    fn start(folder: &Folder, session: &std::path::Path) -> Hostile {
        let program = compiler::compile("programs/server.c", folder.path(), &[]);
        let (path, session) = (folder.path().to_owned(), session.to_owned());
        let command = move |port: u16| {
            let mut command = Command::new(&program);
            broker::preload(&mut command, &session, port);
            command.args(["read", &port.to_string()]);
            command
        };
        Hostile { command: Box::new(command), folder: path, process: None }
    }

    /// A new one, served.
    #[track_caller]
    fn renew(&mut self) {
        self.process = None;
        let port = ports::free();
        let mut process = Process::start("hostile", &self.folder, &mut (self.command)(port));
        process.await_log("is served by the card");
        let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        std::io::Write::write_all(&mut &client, b"hello").expect("it reads");
        process.await_log("read 5");
        self.process = Some((process, client));
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |(process, _)| process.pid())
    }

    /// Has the agent look at the ruins: a client writes, and another knocks.
    fn stir(&mut self) {
        let Some((_, client)) = &mut self.process else { return };
        for _ in 0..3 {
            // It may be reset already.
            let _ = std::io::Write::write_all(client, &[7; 1000]);
        }
    }

    fn end(&mut self) {
        self.process = None;
    }
}
