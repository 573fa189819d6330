//! Many clients connect and then say nothing: how fast, and what does a connection cost?
//!
//! ```text
//! N × (TCP connect ──► CONNECT ──► CONNACK)      then silence
//! ```
//!
//! Memory is what the target's processes have resident more than before, divided by N; CPU time is that of the silence.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::cpu::Subject;
use super::measure::Contestant;
use super::mqtt::{self, Greeting};
use super::report::{Table, grouped};
use super::rounds::Stop;
use super::transport::{Connection, Transport, What};

/// Clients between SYN and CONNACK at once: no listen backlog is shorter.
const HANDSHAKES_MAX: usize = 64;
/// How long nobody may get any further.
const STUCK: Duration = Duration::from_secs(10);
/// How long the target may tidy up before its silence is measured.
const SETTLE: Duration = Duration::from_secs(1);

/// What to do.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// How many clients.
    pub(super) connections: usize,
    /// They connect, and not even greet.
    pub(super) is_tcp_alone: bool,
    /// For how long they are silent.
    pub(super) silence: Duration,
    /// What CONNECT says.
    pub(super) greeting: Greeting,
}

/// What one target's clients cost.
#[derive(Debug, Serialize)]
pub(super) struct Held {
    target: String,
    connections: usize,
    /// Of all clients, one after the other, [`HANDSHAKES_MAX`] at a time.
    connects_per_second: f64,
    processes: Vec<Burden>,
}

/// On one process.
#[derive(Debug, Serialize)]
struct Burden {
    process: String,
    /// Resident more than before.
    bytes_per_connection: f64,
    /// Of one CPU, during the silence.
    idle_cpu_share: f64,
}

impl Hold {
    /// Connects all clients to one target, and looks at it.
    pub(super) fn measure(
        &self,
        transport: &mut dyn Transport,
        contestant: &Contestant,
        stop: &Stop,
    ) -> Result<Held> {
        let before = residents(contestant)?;
        let began = Instant::now();
        let clients = self.connect(transport, contestant, stop)?;
        let took = began.elapsed();
        rest(transport, SETTLE, stop)?;
        let after = residents(contestant)?;
        let costs = contestant.costs()?;
        let silent = Instant::now();
        rest(transport, self.silence, stop)?;
        let silence = silent.elapsed();
        let spent = contestant.costs()?.into_iter().zip(costs).map(|(now, then)| now.since(then));
        let processes = contestant.subjects.iter().zip(before.iter().zip(after)).zip(spent);
        let processes = processes.map(|(((process, _), (before, after)), spent)| Burden {
            process: process.clone(),
            bytes_per_connection: after.saturating_sub(*before) as f64 / clients.len() as f64,
            idle_cpu_share: spent.cpu_ns as f64 / silence.as_nanos() as f64,
        });
        let held = Held {
            target: contestant.target.name.clone(),
            connections: clients.len(),
            connects_per_second: clients.len() as f64 / took.as_secs_f64(),
            processes: processes.collect(),
        };
        for client in clients {
            transport.close(client)?;
        }
        rest(transport, SETTLE, stop)?;
        Ok(held)
    }

    fn connect(
        &self,
        transport: &mut dyn Transport,
        contestant: &Contestant,
        stop: &Stop,
    ) -> Result<Vec<Connection>> {
        let mut clients = Vec::new();
        let (mut ready, mut progress) = (0, Instant::now());
        while ready < self.connections {
            stop.check()?;
            while clients.len() < self.connections && clients.len() - ready < HANDSHAKES_MAX {
                clients.push(transport.open(contestant.target.address)?);
            }
            let (mut greeting, mut closed, mut done) = (Vec::new(), None, 0);
            transport.poll(Duration::from_millis(5), &mut |event| match event.what {
                What::Connected if self.is_tcp_alone => done += 1,
                What::Connected => greeting.push(event.connection),
                What::Data([0x20, 2, 0, 0]) => done += 1,
                What::Data(other) => closed = Some(format!("it said {other:02x?}")),
                What::Closed(reason) => closed = Some(reason),
            })?;
            if let Some(reason) = closed {
                bail!("a client lost its connection after {ready} are there: {reason}");
            }
            for client in greeting {
                let id = format!("hold-{}-{}", std::process::id(), client.0);
                transport.send(client, &mqtt::connect(&id, &self.greeting))?;
            }
            transport.flush()?;
            ready += done;
            if done > 0 {
                progress = Instant::now();
            } else if progress.elapsed() > STUCK {
                bail!(
                    "only {ready} of {} clients are connected, and nothing moves: does {} take so many? Its log, and its limit of open files, may \
                     tell (ulimit -n)",
                    self.connections,
                    contestant.target.name,
                );
            }
        }
        Ok(clients)
    }
}

/// Lets time pass; nobody may lose its connection.
fn rest(transport: &mut dyn Transport, time: Duration, stop: &Stop) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        stop.check()?;
        transport.poll(Duration::from_millis(5), &mut |_| ())?;
        // Looking less often leaves the CPU to the target.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Bytes each process has resident (proc_pid_status(5), VmRSS).
fn residents(contestant: &Contestant) -> Result<Vec<u64>> {
    let resident = |(name, subject): &(String, Subject)| {
        let Subject::Process(pid) = subject else { return Ok(0) };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("{name} is gone"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        kilobytes.map(|kilobytes: u64| kilobytes * 1024).context("no VmRSS")
    };
    contestant.subjects.iter().map(resident).collect()
}

/// A table for a person, or JSON.
pub(super) fn print(all: &[Held], as_json: bool) -> Result<()> {
    let mut out = std::io::stdout();
    if as_json {
        serde_json::to_writer_pretty(&mut out, all).context("cannot print")?;
        return writeln!(out).context("cannot print");
    }
    let columns =
        ["target", "connections", "connects/s", "process", "KiB a connection", "idle CPU"];
    let mut table = Table::new(columns.map(str::to_owned).to_vec());
    for held in all {
        for burden in &held.processes {
            table.push(vec![
                held.target.clone(),
                grouped(held.connections as u64),
                grouped(held.connects_per_second as u64),
                burden.process.clone(),
                format!("{:.2}", burden.bytes_per_connection / 1024.0),
                format!("{:.2} %", burden.idle_cpu_share * 100.0),
            ]);
        }
    }
    write!(out, "{table}").context("cannot print")
}
