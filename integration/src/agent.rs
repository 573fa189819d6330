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
        let mut command = Command::new(paths::built("mqttshim-agent"));
        clear_environment(&mut command);
        command.args(["run", "--channel", &channel, "--session"]).arg(&session);
        let mut process = Process::start("mqttshim-agent", folder.path(), &mut command);
        process.await_log("serving programs");
        (Agent { process, session }, card)
    }

    /// Where programs find it.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.session
    }
}
