//! A program a test started: its output goes to a file, it is ended by its pid, and its last words are shown on failure.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::{network, wait};

/// Bytes of a log shown when a test fails.
const LAST_WORDS_BYTES: usize = 6000;

/// See the module.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Bytes that earlier processes of this name left in the log.
    log_start: usize,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with both outputs appended to `folder/name.log`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Process {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let log_start = fs::read(&log).map_or(0, |before| before.len());
        let errors = file.try_clone().expect("a second descriptor");
        command.envs(network::environment());
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Process { name: name.to_owned(), child, log, log_start, status: None }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.log_start..).unwrap_or_default()).into_owned()
    }

    /// Waits until its log holds `text`.
    ///
    /// # Panics
    /// If that does not happen, or the process ends before.
    #[track_caller]
    pub fn await_log(&mut self, text: &str) {
        self.await_log_within(wait::PATIENCE, text);
    }

    /// Waits until its log holds `text`, for at most `patience`.
    ///
    /// # Panics
    /// If that does not happen, or the process ends before.
    #[track_caller]
    pub fn await_log_within(&mut self, patience: Duration, text: &str) {
        let what = format!("{} writes {text:?}", self.name);
        wait::until_within(patience, &what, || {
            if self.log().contains(text) {
                return Some(());
            }
            if let Some(status) = self.poll() {
                panic!("{} ended ({status}) without writing {text:?}", self.name);
            }
            None
        });
    }

    /// How it ended, if it has.
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("our own child");
        }
        self.status
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.poll().is_none() {
            let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
            let pid = pid.expect("a child's id is positive");
            // It may end in between, and stays a zombie of ours: the id is not reused.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Ends it at once, as `kill -9` does, and waits for that.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If that does not happen.
    #[track_caller]
    pub fn await_end(&mut self) -> ExitStatus {
        self.await_end_within(wait::PATIENCE)
    }

    /// Waits for its end, for at most `patience`.
    ///
    /// # Panics
    /// If that does not happen.
    #[track_caller]
    pub fn await_end_within(&mut self, patience: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        wait::until_within(patience, &what, || self.poll())
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.await_end()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.poll().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended_before = self.poll();
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let mut start = log.len().saturating_sub(LAST_WORDS_BYTES);
            while !log.is_char_boundary(start) {
                start += 1;
            }
            let state = ended_before.map_or("running".to_owned(), |status| status.to_string());
            eprintln!("──── {} ({state}), last words ────\n{}", self.name, &log[start..]);
        }
    }
}
