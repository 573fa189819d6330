//! Calls counted instead of written: a table at the end of the process, with the columns of `strace -c -w`.
//!
//! The time of a call is what passed, not what the processor spent: an answer from shared memory spends none in the kernel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::call::{CALLS, Call};
use super::line::{Line, put};

/// What is counted of one call.
struct Count {
    calls: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

static COUNTS: [Count; CALLS] = [const {
    Count { calls: AtomicU64::new(0), errors: AtomicU64::new(0), nanos: AtomicU64::new(0) }
}; CALLS];

/// A row of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    calls: u64,
    errors: u64,
    nanos: u64,
}

/// Counts a call.
pub(super) fn count(call: Call, is_failed: bool, elapsed: Duration) {
    let count = &COUNTS[call as usize];
    count.calls.fetch_add(1, Ordering::Relaxed);
    count.errors.fetch_add(u64::from(is_failed), Ordering::Relaxed);
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    count.nanos.fetch_add(nanos, Ordering::Relaxed);
}

/// In a forked child, whose table is its own.
pub(super) fn reset() {
    for count in &COUNTS {
        for number in [&count.calls, &count.errors, &count.nanos] {
            number.store(0, Ordering::Relaxed);
        }
    }
}

fn rows() -> [(Call, Row); CALLS] {
    std::array::from_fn(|at| {
        let count = &COUNTS[at];
        let row = Row {
            calls: count.calls.load(Ordering::Relaxed),
            errors: count.errors.load(Ordering::Relaxed),
            nanos: count.nanos.load(Ordering::Relaxed),
        };
        (Call::ALL[at], row)
    })
}

/// Writes the table of process `pid`; nothing if it made no call.
pub(super) fn write(line: &mut Line, pid: i32) {
    table(line, pid, &mut rows());
}

fn table(line: &mut Line, pid: i32, rows: &mut [(Call, Row)]) {
    let total = rows.iter().fold(Row::default(), |sum, (_, row)| Row {
        calls: sum.calls + row.calls,
        errors: sum.errors + row.errors,
        nanos: sum.nanos.saturating_add(row.nanos),
    });
    if total.calls == 0 {
        return;
    }
    rows.sort_unstable_by_key(|(_, row)| std::cmp::Reverse(row.nanos));
    let shown = || rows.iter().filter(|(_, row)| row.calls > 0);
    // The last column is as wide as the longest name and one more, and no narrower than its ruler.
    let width = shown().map(|(call, _)| call.name().len() + 1).max().unwrap_or(0).max(16);
    let ruler = ["------", "-----------", "-----------", "---------", "---------"];
    let rule = |line: &mut Line| {
        ruler.iter().for_each(|part| put!(line, "{part} "));
        put!(line, "{:-<width$}\n", "");
    };
    put!(line, "System call usage summary of process {pid}:\n");
    put!(line, "% time     seconds  usecs/call     calls    errors syscall\n");
    rule(line);
    for (call, row) in shown() {
        write_row(line, row, total.nanos, call.name());
    }
    rule(line);
    write_row(line, &total, total.nanos, "total");
}

fn write_row(line: &mut Line, row: &Row, nanos_total: u64, name: &str) {
    let percent = match nanos_total {
        0 => 0.0,
        total => 100.0 * row.nanos as f64 / total as f64,
    };
    let (seconds, micros) = (row.nanos as f64 / 1e9, row.nanos / 1000 / row.calls.max(1));
    put!(line, "{percent:6.2} {seconds:11.6} {micros:11} {:9} ", row.calls);
    match row.errors {
        0 => put!(line, "{:9}", ""),
        errors => put!(line, "{errors:9}"),
    }
    put!(line, " {name}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    // As strace 6.1 writes it, but for the first line.
    const EXPECTED: &str = "\
System call usage summary of process 7:
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 75.00    0.003000         300        10         2 read
 25.00    0.001000        1000         1           bind
------ ----------- ----------- --------- --------- ----------------
100.00    0.004000         363        11         2 total
";

    #[test]
    fn the_table_has_straces_columns() {
        let mut line = Box::new(Line::new());
        let row = |calls, errors, nanos| Row { calls, errors, nanos };
        let mut rows = [
            (Call::Bind, row(1, 0, 1_000_000)),
            (Call::Socket, row(0, 0, 0)),
            (Call::Read, row(10, 2, 3_000_000)),
        ];
        table(&mut line, 7, &mut rows);
        assert_eq!(String::from_utf8_lossy(line.as_bytes()), EXPECTED);
    }

    #[test]
    fn a_process_without_calls_has_no_table() {
        let mut line = Box::new(Line::new());
        table(&mut line, 7, &mut [(Call::Bind, Row::default())]);
        assert!(line.is_empty());
    }
}
