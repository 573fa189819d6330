//! Runs programs on both, many in one process and on one card.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Program;
use crate::card::clear_environment;
use crate::compiler::compiled_folder;
use crate::{Card, Folder, Process, broker, ports};

/// How long the programs of one process may take: each ends itself far before.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is compared with the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// The kernel once more: what differs there is the interpreter's fault.
    Kernel,
    /// The card, the library as it is: epoll sets it knows wholly may be answered by it.
    Card,
    /// The card, every wait being the kernel's.
    Wire,
}

/// What became of a program.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its trace on the kernel's sockets.
    pub native: String,
    /// Its trace on the card's.
    pub ours: String,
}

impl Played {
    /// Lines that differ, those of the kernel with a minus. Empty if none does.
    #[must_use]
    pub fn difference(&self) -> String {
        if !self.native.ends_with("end\n") {
            return format!("not even the kernel ran it to its end:\n{}", self.native);
        }
        let mut text = String::new();
        let (mut native, mut ours) = (self.native.lines(), self.ours.lines());
        loop {
            match (native.next(), ours.next()) {
                (None, None) => return text,
                (left, right) if left == right => {}
                (left, right) => {
                    let (left, right) = (left.unwrap_or("∅"), right.unwrap_or("∅"));
                    text += &format!("  - {left}\n  + {right}\n");
                }
            }
        }
    }
}

/// A card, and a place for programs.
#[derive(Debug)]
pub struct Rig {
    folder: Folder,
    card: Card,
    interpreter: PathBuf,
    mode: Mode,
}

impl Rig {
    /// A new card.
    ///
    /// # Panics
    /// If it does not come up, or the interpreter does not compile.
    #[must_use]
    #[track_caller]
    pub fn start(mode: Mode) -> Rig {
        let folder = Folder::new();
        let card = Card::start(&folder);
        Rig { folder, card, interpreter: compiled_folder("random"), mode }
    }

    /// Runs the programs in their order, on both. What follows one that ended its process is run in another.
    ///
    /// # Panics
    /// If a process cannot be run, or does not even begin with a program.
    #[track_caller]
    pub fn play(&self, programs: &[Program]) -> Vec<Played> {
        let natives = self.run_all(programs, None);
        let session = (self.mode != Mode::Kernel).then(|| self.card.session());
        let ours = self.run_all(programs, session);
        natives.into_iter().zip(ours).map(|(native, ours)| Played { native, ours }).collect()
    }

    #[track_caller]
    fn run_all(&self, programs: &[Program], session: Option<&Path>) -> Vec<String> {
        let mut traces = Vec::new();
        while traces.len() < programs.len() {
            let more = self.run(&programs[traces.len()..], session);
            assert!(!more.is_empty(), "the interpreter ran nothing");
            traces.extend(more);
        }
        traces
    }

    /// Runs one process. It may end before the last program does: traces of those it began.
    #[track_caller]
    fn run(&self, programs: &[Program], session: Option<&Path>) -> Vec<String> {
        let texts: String = programs.iter().map(Program::to_string).collect();
        let file = self.folder.write("programs", &texts);
        let trace = self.folder.join("trace");
        // It is appended to.
        let _ = fs::remove_file(&trace);
        let [port, connect_port, sync_port] = [ports::free(), ports::free(), ports::free()];
        let mut command = Command::new(&self.interpreter);
        clear_environment(&mut command);
        if let Some(session) = session {
            let rules = format!(
                "offload listen *:{port}\noffload listen *:{sync_port}\noffload listen *:0\n\
                 offload connect *:{connect_port}\n"
            );
            broker::preload(&mut command, session, port);
            command
                .env("MQTTSHIM_RULES", self.folder.write("rules", &rules))
                .env("MQTTSHIM_LOG", "warn");
            if self.mode == Mode::Wire {
                command.env("MQTTSHIM_EPOLL", "wire");
            }
        }
        let name = if session.is_some() { "preloaded" } else { "native" };
        command.args([port, connect_port, sync_port].map(|port| port.to_string()));
        let mut process = Process::start(name, self.folder.path(), command.arg(file).arg(&trace));
        let status = process.await_end_within(PATIENCE);
        let text = fs::read_to_string(&trace).unwrap_or_default();
        if !status.success() {
            eprintln!("the interpreter, {name}: {status}\n{}", process.log());
        }
        let mut traces = traces(&text);
        programs
            .iter()
            .map_while(|program| {
                let mut trace = traces.remove(&program.seed)?;
                if !trace.ends_with("end\n") {
                    trace += &format!("{status}\n");
                }
                Some(trace)
            })
            .collect()
    }
}

/// By seed.
fn traces(text: &str) -> HashMap<u64, String> {
    let mut traces = HashMap::new();
    for part in text.split("program ").skip(1) {
        let (seed, trace) = part.split_once('\n').unwrap_or((part, ""));
        if let Ok(seed) = seed.parse() {
            traces.insert(seed, trace.to_owned());
        }
    }
    traces
}
