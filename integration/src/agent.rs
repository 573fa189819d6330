//! `mqttshim-agent run`: the host end of the channel as a process of its own, with a card elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::card::clear_environment;
use crate::process::Process;
use crate::{Card, Folder, paths};

/// See the module.
#[derive(Debug)]
pub struct Agent {
    /// The process.
    pub process: Process,
    folder: PathBuf,
    channel: String,
    session: PathBuf,
    more: Vec<String>,
}

impl Agent {
    /// An agent and a card, joined by the emulated channel.
    ///
    /// # Panics
    /// If either does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder) -> (Agent, Card) {
        Agent::start_with(folder, &[], &[])
    }

    /// The same with more flags for the agent, and for the card.
    ///
    /// # Panics
    /// If either does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_with(folder: &Folder, more: &[&str], cards: &[&str]) -> (Agent, Card) {
        let channel = format!("emulated:{}", folder.join("channel.sock").display());
        let cards: Vec<&str> =
            ["--channel", &channel].into_iter().chain(cards.iter().copied()).collect();
        let card = Card::start_with(folder, &cards);
        let session = folder.join("agent.sock");
        let folder = folder.path().to_owned();
        let more: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
        let process = launch(&folder, &channel, &session, &more);
        let mut agent = Agent { process, folder, channel, session, more };
        agent.await_ready();
        (agent, card)
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
        self.process = launch(&self.folder, &self.channel, &self.session, &self.more);
    }

    /// Waits until programs find it.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn await_ready(&mut self) {
        self.process.await_log("serving programs");
    }

    /// Where programs find it.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.session
    }
}

#[track_caller]
fn launch(folder: &Path, channel: &str, session: &Path, more: &[String]) -> Process {
    let mut command = Command::new(paths::built("mqttshim-agent"));
    clear_environment(&mut command);
    command.args(["run", "--channel", channel, "--session"]).arg(session).args(more);
    Process::start("mqttshim-agent", folder, &mut command)
}
