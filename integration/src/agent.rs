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
}

impl Agent {
    /// An agent and a card, joined by the emulated channel.
    ///
    /// # Panics
    /// If either does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder) -> (Agent, Card) {
        let channel = format!("emulated:{}", folder.join("channel.sock").display());
        let card = Card::start_with(folder, &["--channel", &channel]);
        let session = folder.join("agent.sock");
        let folder = folder.path().to_owned();
        let process = launch(&folder, &channel, &session);
        (Agent { process, folder, channel, session }, card)
    }

    /// Starts it again after its end, at the same places.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.folder, &self.channel, &self.session);
    }

    /// Where programs find it.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.session
    }
}

#[track_caller]
fn launch(folder: &Path, channel: &str, session: &Path) -> Process {
    let mut command = Command::new(paths::built("mqttshim-agent"));
    clear_environment(&mut command);
    command.args(["run", "--channel", channel, "--session"]).arg(session);
    let mut process = Process::start("mqttshim-agent", folder, &mut command);
    process.await_log("serving programs");
    process
}
