//! Logs to standard error, written by a thread of their own.
//!
//! ```text
//! tracing ──line──► [ at most LINES_MAX ] ──► thread ──► stderr
//!                        └─ full: dropped, counted, and said with the next line that fits
//! ```
//!
//! A terminal that is stopped, a full pipe or a full disk must not stop the data plane, nor end the process: a line waits in a
//! bounded queue or is lost.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const LINES_MAX: usize = 1024;
/// How long the end of the process waits for the last lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is none.
    #[error("{level:?} is no log level: {error}; try error, warn, info, debug or trace")]
    Level {
        /// What was asked for.
        level: String,
        /// What is wrong with it.
        error: tracing_subscriber::filter::ParseError,
    },
    /// It would be taken for the name of a part of the program, and nothing would be logged.
    #[error("{0:?} is no log level; try error, warn, info, debug or trace")]
    Word(String),
    /// No thread.
    #[error("cannot start the thread that writes logs: {0}")]
    Thread(#[source] io::Error),
    /// Somebody else has set logs up in this process.
    #[error("logs are already set up")]
    AlreadySet,
}

enum Item {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Whether a level is one, as people say it: a word alone is a level, and never the name of a part of the program.
///
/// # Errors
/// [`LogError::Word`], [`LogError::Level`].
pub fn check(level: &str) -> Result<(), LogError> {
    let is_none =
        |word: &&str| !word.contains(['=', '[']) && word.trim().parse::<LevelFilter>().is_err();
    if let Some(word) = level.split(',').find(is_none) {
        return Err(LogError::Word(word.to_owned()));
    }
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(level).map_err(|error| LogError::Level { level: level.to_owned(), error })
}

/// The queue of lines.
#[derive(Clone)]
pub struct Logs {
    lines: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Logs {
    /// Sends this process's logs to standard error.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn start(level: &str) -> Result<Logs, LogError> {
        let filter = filter(level)?;
        let (lines, items) = sync_channel(LINES_MAX);
        let logs = Logs { lines, dropped: Arc::default() };
        let dropped = Arc::clone(&logs.dropped);
        let thread = std::thread::Builder::new().name("logs".to_owned());
        thread.spawn(move || write_all(&items, &dropped)).map_err(LogError::Thread)?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(logs.clone())
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .with_target(false)
            .try_init()
            .map_err(|_| LogError::AlreadySet)?;
        Ok(logs)
    }

    /// Waits, within a time, until what was logged so far is written.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.lines.try_send(Item::Flush(done)).is_ok() {
            // A timeout means that nobody takes our lines: there is no one to tell.
            let _ = is_done.recv_timeout(FLUSH_TIME_MAX);
        }
    }
}

fn write_all(items: &Receiver<Item>, dropped: &AtomicU64) {
    let mut stderr = io::stderr();
    while let Ok(item) = items.recv() {
        match item {
            Item::Line(line) => {
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ = writeln!(stderr, "({lost} lines of logs were lost)");
                }
                // A standard error that takes nothing leaves nobody to tell.
                let _ = stderr.write_all(&line);
            }
            // The one who asked may have given up.
            Item::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// One line under way to the queue.
pub struct Line {
    bytes: Vec<u8>,
    logs: Logs,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.bytes);
        if !line.is_empty() && self.logs.lines.try_send(Item::Line(line)).is_err() {
            self.logs.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { bytes: Vec::new(), logs: self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_the_newest_line_and_counts_it() {
        let (lines, items) = sync_channel(2);
        let logs = Logs { lines, dropped: Arc::default() };
        for text in ["one", "two", "three"] {
            logs.make_writer().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(logs.dropped.load(Ordering::Relaxed), 1);
        let queued: Vec<_> = items.try_iter().collect();
        assert!(matches!(&queued[..], [Item::Line(one), Item::Line(two)]
            if one == b"one" && two == b"two"));
    }

    #[test]
    fn a_level_that_is_none_is_refused_with_those_that_are() {
        let error = Logs::start("dpu_server=loudly").err().unwrap().to_string();
        assert!(error.contains("loudly") && error.contains("trace"), "{error}");
        for none in ["loud", "info,loud", "dpu_server=loudly"] {
            let error = check(none).err().unwrap().to_string();
            assert!(error.contains("loud") && error.contains("trace"), "{error}");
        }
        for level in ["info", "WARN", "off", "info,mqttshim_agent=debug"] {
            assert!(check(level).is_ok(), "{level}");
        }
    }
}
