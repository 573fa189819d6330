//! What a run found, for people (table, page) and for programs (JSON).
//!
//! A figure of one machine at one time says little; the ratio to the first target of the same run says more, so every
//! rendering shows it. Latencies and costs are in nanoseconds throughout the JSON.

mod html;
mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;

pub(crate) use self::table::Table;
use super::cpu::Cost;
use super::measure::{Spent, Summary};

/// Which measurement.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// One publisher, N subscribers.
    Fanout,
    /// Every connection for itself.
    Echo,
    /// One connection after another.
    Connect,
}

impl Kind {
    /// How many times better `ours` is than `base`, measured for the same time: faster, or more echoes.
    fn compare(self, ours: &Summary, base: &Summary) -> Option<f64> {
        let (better, worse) = match self {
            Kind::Fanout => (base.p50_ns, ours.p50_ns),
            Kind::Echo | Kind::Connect => (ours.count as u64, base.count as u64),
        };
        (better > 0 && worse > 0).then(|| better as f64 / worse as f64)
    }
}

/// One target at one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the target.
    pub(crate) target: String,
    /// Subscribers, or connections of an echo.
    pub(crate) size: usize,
    /// Deliveries, or echoes.
    pub(crate) operations: u64,
    /// Echoes a second; a fan-out's rate is a setting.
    pub(crate) per_second: Option<f64>,
    /// Over all counted slices.
    pub(crate) latency: Summary,
    /// Each counted slice by itself: how steady the figure is.
    pub(crate) rounds: Vec<Summary>,
    /// What the target's processes spent.
    pub(crate) processes: Vec<Spent>,
    /// What this program spent, all threads, bare sender included.
    pub(crate) client: Cost,
    /// Messages issued more than a millisecond after they were due.
    pub(crate) late: u64,
    /// How many times better than the first target at the same size: faster (fan-out), more echoes a second.
    pub(crate) ratio: Option<f64>,
    /// The same, slice by slice.
    pub(crate) ratios: Vec<f64>,
}

/// A measured server, as it was started.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Described {
    /// Name, address, processes.
    pub(crate) name: String,
    /// Where.
    pub(crate) address: String,
    /// The command line of each process.
    pub(crate) commands: Vec<String>,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Which measurement.
    pub(crate) kind: Kind,
    /// This program.
    pub(crate) program: String,
    /// When it started, UTC.
    pub(crate) started: String,
    /// Kernel release and architecture.
    pub(crate) kernel: String,
    /// CPUs this program may use.
    pub(crate) cpus: usize,
    /// Every setting.
    pub(crate) settings: serde_json::Value,
    /// The settings in one line.
    pub(crate) summary: String,
    /// Targets, the first one being what the others are compared with.
    pub(crate) targets: Vec<Described>,
    /// What must be known to read the figures.
    pub(crate) notes: Vec<String>,
    /// The figures.
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// A report with everything but figures.
    pub(crate) fn new(kind: Kind, summary: String, settings: serde_json::Value) -> Report {
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Report {
            kind,
            program: concat!("mqttshim ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: utc(SystemTime::now()),
            kernel: format!("{} {}", text(system.release()), text(system.machine())),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            settings,
            summary,
            targets: Vec::new(),
            notes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds rows of one size, the first target's first, and compares them with that.
    pub(crate) fn push(&mut self, mut rows: Vec<Row>) {
        let Some(base) = rows.first().cloned() else { return };
        for row in &mut rows {
            row.ratio = self.kind.compare(&row.latency, &base.latency);
            let rounds = row.rounds.iter().zip(&base.rounds);
            let compared = rounds.filter_map(|(ours, theirs)| self.kind.compare(ours, theirs));
            row.ratios = compared.collect();
        }
        self.rows.append(&mut rows);
    }

    /// The table for a person.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.heading(), self.summary);
        let mut sizes: Vec<_> = self.rows.iter().map(|row| row.size).collect();
        sizes.dedup();
        for size in sizes {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.size == size).collect();
            let noun = match (self.kind, size) {
                (Kind::Fanout, 1) => "subscriber",
                (Kind::Fanout, _) => "subscribers",
                (Kind::Echo, 1) => "connection",
                (Kind::Echo, _) => "connections",
                (Kind::Connect, _) => "client at a time",
            };
            let _ = write!(text, "\n{} {noun}\n{}", grouped(size as u64), self.block(&rows));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// What was measured, where and when.
    pub(crate) fn heading(&self) -> String {
        let what = match self.kind {
            Kind::Fanout => "Fan-out: from issuing a PUBLISH to its arrival at the last subscriber",
            Kind::Echo => "Echo: each connection publishes to itself, one message at a time",
            Kind::Connect => {
                "Connect: one client after another, from connect() to CONNACK and close()"
            }
        };
        format!(
            "{what}\n{} · Linux {} · {} CPUs · {}",
            self.program, self.kernel, self.cpus, self.started
        )
    }

    fn block(&self, rows: &[&Row]) -> Table {
        let mut table = Table::new(self.columns());
        for row in rows {
            table.push(self.cells(row));
        }
        table
    }

    /// Column titles, the same for table and page.
    fn columns(&self) -> Vec<String> {
        let base = self.targets.first().map_or("the first", |target| target.name.as_str());
        let mut columns: Vec<String> = vec!["target".to_owned()];
        match self.kind {
            Kind::Fanout => {}
            Kind::Echo => columns.push("echoes/s".to_owned()),
            Kind::Connect => columns.push("connects/s".to_owned()),
        }
        columns.extend(["min", "p50", "p90", "p99", "max"].map(str::to_owned));
        columns.push(format!("against {base}"));
        match self.kind {
            Kind::Fanout => columns.push("CPU per delivery".to_owned()),
            Kind::Echo => columns.extend(["CPU per echo", "wake-ups per echo"].map(str::to_owned)),
            Kind::Connect => columns.push("CPU per connect".to_owned()),
        }
        columns
    }

    /// One row under [`columns`](Report::columns).
    fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = vec![row.target.clone()];
        if let Some(rate) = row.per_second.filter(|_| self.kind != Kind::Fanout) {
            cells.push(grouped(rate.round() as u64));
        }
        let latency = row.latency;
        let times =
            [latency.min_ns, latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns];
        cells.extend(times.map(duration));
        cells.push(ratio_text(row));
        let per = |ns: u64| ns as f64 / row.operations.max(1) as f64;
        let each = |show: &dyn Fn(&Spent) -> String| {
            let list: Vec<_> = row.processes.iter().map(show).collect();
            if list.is_empty() { "-".to_owned() } else { list.join(", ") }
        };
        cells.push(each(&|spent| {
            format!("{} {:.2} µs", spent.process, per(spent.cost.cpu_ns) / 1000.0)
        }));
        if self.kind == Kind::Echo {
            cells.push(each(&|spent| {
                let (own, pushed) = (per(spent.cost.voluntary), per(spent.cost.involuntary));
                format!("{} {own:.2} (+{pushed:.2} pushed off)", spent.process)
            }));
        }
        cells
    }

    /// Writes the report where it was asked for.
    pub(crate) fn save(&self, json: Option<&Path>, html: Option<&Path>) -> Result<()> {
        if let Some(path) = json {
            let mut text = serde_json::to_string_pretty(self).context("JSON")?;
            text.push('\n');
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = html {
            fs::write(path, html::page(self))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// The ratio and, where there are enough slices, the middle half of the slices' own.
fn ratio_text(row: &Row) -> String {
    let Some(ratio) = row.ratio else { return "-".to_owned() };
    let mut ratios = row.ratios.clone();
    ratios.sort_by(f64::total_cmp);
    if ratios.len() < 4 {
        return format!("{ratio:.2}×");
    }
    let (low, high) = (ratios[ratios.len() / 4], ratios[ratios.len() - 1 - ratios.len() / 4]);
    format!("{ratio:.2}× ({low:.2}–{high:.2})")
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds with three significant digits or so.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.2} µs", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        1_000_000..100_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

/// RFC 3339 in UTC, to the second.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Days since 1970-01-01 as a date of the Gregorian calendar, counted year by year and month by month.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests;
