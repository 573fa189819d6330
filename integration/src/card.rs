//! `dpu-server run`, as the card of one test.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::process::Process;
use crate::{Folder, network, paths, ports, wait};

/// How old numbers may be: a card publishes them 20 ms apart.
const METRICS_AGE_MAX: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub struct Card {
    /// The process.
    pub process: Process,
    session: PathBuf,
    metrics_port: u16,
    folder: PathBuf,
    more: Vec<String>,
}

impl Card {
    /// A card with its agent inside, which trusts what brokers answer to SUBSCRIBE. Waits until it serves.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder) -> Card {
        Card::start_with(folder, &[])
    }

    /// The same with `more` flags, which may ask for another trust.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_with(folder: &Folder, more: &[&str]) -> Card {
        let session = folder.join("session.sock");
        let metrics_port = ports::free();
        let folder = folder.path().to_owned();
        let more: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
        let process = launch(&folder, &session, metrics_port, &more);
        let mut card = Card { process, session, metrics_port, folder, more };
        card.await_ready();
        card
    }

    /// Starts it again after its end, at the same places.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn restart(&mut self) {
        self.launch_again();
        self.await_ready();
    }

    /// The same, without waiting for anything.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn launch_again(&mut self) {
        self.process.kill();
        self.process = launch(&self.folder, &self.session, self.metrics_port, &self.more);
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn await_ready(&mut self) {
        // Its last word before it serves: by then the session path listens, and not just exists.
        self.process.await_log("serving sockets_max=");
        let port = self.metrics_port;
        wait::until("the card publishes metrics", || Metrics::read(port).ok());
    }

    /// Where programs find it.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.session
    }

    /// Where it serves its metrics, on this machine.
    #[must_use]
    pub fn metrics_port(&self) -> u16 {
        self.metrics_port
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its numbers, none older than this call unless the card was kept from its core. To see an effect, look until it is there
    /// ([`Self::await_metrics`]).
    ///
    /// # Panics
    /// If it does not serve them.
    #[must_use]
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        thread::sleep(METRICS_AGE_MAX);
        self.published()
    }

    /// Its numbers as they were published last.
    #[track_caller]
    fn published(&self) -> Metrics {
        Metrics::read(self.metrics_port).expect("the card serves metrics while it runs")
    }

    /// Waits until its numbers satisfy `look`.
    ///
    /// # Panics
    /// With the numbers, if they never do.
    #[track_caller]
    pub fn await_metrics(&self, what: &str, mut look: impl FnMut(&Metrics) -> bool) -> Metrics {
        let mut last = Metrics::default();
        let found = wait::poll(wait::PATIENCE, || {
            last = self.published();
            look(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("never seen: {what}; the metrics are\n{}", last.text()))
    }
}

fn launch(folder: &Path, session: &Path, metrics_port: u16, more: &[String]) -> Process {
    let mut command = Command::new(program());
    clear_environment(&mut command);
    command.arg("run").arg("--session").arg(session);
    if !more.iter().any(|flag| flag == "--trust") {
        command.args(["--trust", "suback"]);
    }
    // Tests start their brokers without sessions, if they do not say otherwise.
    if !more.iter().any(|flag| flag == "--older-sessions") {
        command.args(["--older-sessions", "none"]);
    }
    if !more.iter().any(|flag| flag == "--stack") {
        command.args(network::card_arguments(folder));
    }
    command.arg("--metrics").arg(format!("{}:{metrics_port}", Ipv4Addr::LOCALHOST)).args(more);
    Process::start("dpu-server", folder, &mut command)
}

/// The daemon: the one that was built, or one with a fault built in (see `scripts/oracle-mutations.sh`).
fn program() -> PathBuf {
    std::env::var_os("DPU_SERVER").map_or_else(|| paths::built("dpu-server"), PathBuf::from)
}

/// Takes out of the environment what would steer us.
pub fn clear_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MQTTSHIM_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env_remove("RUST_LOG");
}
