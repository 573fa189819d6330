//! Calls to lines. One line is begun at a time; a call of another thread that comes in between leaves it unfinished, and it is
//! resumed on a line of its own, as strace(1) does when it follows several threads.
//!
//! ```text
//! 7  12:00:00.000001 accept(3,  <unfinished ...>
//! 8  12:00:00.000002 close(5)             = 0 <0.000001> {kernel: not offloaded}
//! 7  12:00:00.000003 <... accept resumed>NULL, NULL) = 5 <0.000002> {ring}
//! ```

use std::time::Duration;

use rustix::io::Errno;

use super::answer::{self, Note};
use super::arg::{self, Arg, Before, Result};
use super::call::Call;
use super::clock;
use super::line::{Line, put};
use super::output::Output;
use super::signals;
use crate::table::Entry;

/// Where the results are aligned, counted from 0 (`strace -a`).
const RESULT_COLUMN: usize = 40;

/// The lines of a process. See the module.
pub(super) struct Lines {
    pub(super) output: Output,
    line: Line,
    /// The call whose line is begun; 0: none is.
    open: u64,
    /// Calls so far.
    calls: u64,
    /// Lines that could not be written since the last that was.
    lost: u32,
    /// Whether there are other threads or processes, so that lines on a terminal need a name.
    is_one_of_many: bool,
    /// Nobody reads any more.
    is_over: bool,
}

/// What a call left behind, for its end.
pub(super) struct Ended<'a> {
    pub(super) call: Call,
    pub(super) args: &'a [Arg],
    pub(super) before: &'a Before,
    /// Its number; 0 if its beginning was lost.
    pub(super) number: u64,
    pub(super) result: Result,
    pub(super) note: Note,
    pub(super) asked: Option<Duration>,
    pub(super) entry: Option<Entry>,
}

impl Lines {
    pub(super) const fn new() -> Lines {
        Lines {
            output: Output::NONE,
            line: Line::new(),
            open: 0,
            calls: 0,
            lost: 0,
            is_one_of_many: false,
            is_over: false,
        }
    }

    /// A call begins. Its number is for its end.
    pub(super) fn begin(&mut self, call: Call, args: &[Arg]) -> (u64, Before) {
        self.output.check();
        self.leave_unfinished();
        self.leader();
        self.line.push(call.name());
        self.line.push("(");
        let before = arg::begin(&mut self.line, args);
        self.calls += 1;
        self.open = self.calls;
        (self.calls, before)
    }

    /// A call ends.
    pub(super) fn end(&mut self, ended: &Ended<'_>) {
        if ended.number == 0 {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        if self.open != ended.number {
            self.leave_unfinished();
            self.leader();
            put!(self.line, "<... {} resumed>", ended.call.name());
        }
        self.open = 0;
        let line = &mut self.line;
        arg::end(line, ended.args, ended.before, ended.result);
        line.begin_tail();
        line.push(") ");
        line.pad_to(RESULT_COLUMN);
        line.push("= ");
        arg::result(line, ended.args, ended.before, ended.result);
        let elapsed = ended.result.elapsed;
        put!(line, " <{}.{:06}>", elapsed.as_secs(), elapsed.subsec_micros());
        answer::suffix(line, ended.note, ended.asked, ended.entry);
        line.push("\n");
        self.write();
    }

    /// A line that was begun ends without its call.
    pub(super) fn leave_unfinished(&mut self) {
        if self.open != 0 {
            self.open = 0;
            self.line.begin_tail();
            self.line.push(" <unfinished ...>\n");
            self.write();
        }
    }

    /// In a forked child: what was begun is the parent's.
    pub(super) fn begin_child(&mut self) {
        self.open = 0;
        self.lost = 0;
        self.begin_many();
    }

    /// From now on there is more than one process or thread.
    pub(super) fn begin_many(&mut self) {
        self.is_one_of_many = true;
    }

    /// Writes text that is no call.
    pub(super) fn write_text(&mut self, text: impl FnOnce(&mut Line)) {
        self.line.clear();
        self.line.begin_tail();
        text(&mut self.line);
        if !self.line.is_empty() {
            self.write();
        }
    }

    /// Starts a line: who, and when.
    fn leader(&mut self) {
        self.line.clear();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        if self.output.is_file() {
            put!(self.line, "{thread:<5} ");
        } else if self.is_one_of_many || clock::has_threads() {
            put!(self.line, "[pid {thread:5}] ");
        }
        clock::now(&mut self.line);
    }

    fn write(&mut self) {
        if self.is_over {
            return;
        }
        match self.output.write(self.line.as_bytes()) {
            Ok(()) if self.lost > 0 => self.tell_of_loss(),
            Ok(()) => {}
            Err(errno) => {
                self.lost = self.lost.saturating_add(1);
                match errno {
                    Errno::PIPE => {
                        signals::swallow(libc::SIGPIPE);
                        self.is_over = true;
                    }
                    Errno::FBIG => signals::swallow(libc::SIGXFSZ),
                    _ => {}
                }
            }
        }
    }

    fn tell_of_loss(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        self.leader();
        put!(self.line, "+++ {lost} lines lost +++\n");
        if self.output.write(self.line.as_bytes()).is_err() {
            self.lost = lost;
        }
    }
}
