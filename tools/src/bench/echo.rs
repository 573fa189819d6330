//! Every connection publishes to itself: how fast is the way through the broker and back?
//!
//! ```text
//! connection k ──PUBLISH QoS 1 on topic k──► broker ──the copy, and PUBACK──► connection k ──► the next one
//! ```
//!
//! Closed loop: the next PUBLISH leaves when the copy and the PUBACK of the one before are back, whichever comes last.
//! At QoS 0 the copy alone. Nothing is distributed, so this is the path a card cannot shorten.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu::{self, Cost, Subject};
use super::measure::{Contestant, Meter, Summary, summarise};
use super::mqtt::{self, Greeting, Packet};
use super::report::Row;
use super::rounds::{self, Slice, Stop};
use super::stage::{Arrival, Stage};
use super::transport::{Transport, now_ns};

/// How long an echo may take.
const LOST_NS: u64 = 10_000_000_000;

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    /// Bytes of application message, at least the 8 of the sequence number.
    pub(crate) payload_bytes: usize,
    /// 0 or 1.
    pub(crate) qos: u8,
    /// Counted time per target and number of connections.
    pub(crate) duration: Duration,
    /// Uncounted time before it.
    pub(crate) warmup: Duration,
    /// Length of one turn.
    pub(crate) slice: Duration,
    /// What CONNECT says.
    pub(crate) greeting: Greeting,
}

/// What one connection waits for.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    sequence: u64,
    issued_ns: u64,
    copy: bool,
    puback: bool,
}

#[derive(Debug)]
struct Course {
    fleet: usize,
    lines: Vec<Line>,
    waiting: usize,
    /// Connections whose echo is complete and whose next may leave.
    free: Vec<usize>,
    rounds: Vec<Vec<u64>>,
    current: Vec<u64>,
    busy: Duration,
    meter: Meter,
    client: Cost,
}

impl Echo {
    /// Measures all contestants with `connections` connections each; one row per contestant.
    pub(crate) fn measure(
        &self,
        mut transport: Box<dyn Transport>,
        contestants: &[Contestant],
        connections: usize,
        stop: &Stop,
    ) -> Result<(Vec<Row>, String)> {
        transport.set_prompt(true);
        let mut stage = Stage::new(transport, self.qos, self.greeting.clone(), stop.clone());
        let mut courses = Vec::new();
        for contestant in contestants {
            let filters = (0..connections).map(|client| Some(topic(client))).collect();
            let target = &contestant.target;
            courses.push(Course {
                fleet: stage.bring_up(&target.name, target.address, filters)?,
                lines: vec![Line::default(); connections],
                waiting: 0,
                free: Vec::new(),
                rounds: Vec::new(),
                current: Vec::new(),
                busy: Duration::ZERO,
                meter: Meter::new(contestant),
                client: Cost::default(),
            });
        }
        for slice in rounds::plan(contestants.len(), self.warmup, self.duration, self.slice) {
            stage.keep_alive()?;
            let contestant = &contestants[slice.target];
            let course = &mut courses[slice.target];
            self.run_slice(&mut stage, contestant, course, slice).with_context(|| {
                format!("{}, {connections} connections", contestant.target.name)
            })?;
        }
        let client = stage.transport().describe();
        stage.tear_down()?;
        let row = |(course, contestant)| row(course, contestant, connections);
        Ok((courses.into_iter().zip(contestants).map(row).collect(), client))
    }

    fn run_slice(
        &self,
        stage: &mut Stage,
        contestant: &Contestant,
        course: &mut Course,
        slice: Slice,
    ) -> Result<()> {
        let own = Subject::Process(std::process::id());
        let client_before = cpu::read(own).context("own CPU time")?;
        course.meter.start(contestant)?;
        let start = now_ns();
        let end = start + u64::try_from(slice.length.as_nanos()).context("slice length")?;
        course.free = (0..course.lines.len()).collect();
        let mut now = start;
        while now < end || course.waiting > 0 {
            if now < end {
                self.issue(stage, course)?;
            } else if now > end + LOST_NS {
                bail!("{} echoes did not come back", course.waiting);
            }
            stage.pump(Duration::from_millis(20), &mut |arrival| {
                course.arrived(&arrival, self.qos)
            })?;
            now = now_ns();
        }
        course.meter.stop(contestant, !slice.warmup)?;
        let latencies = std::mem::take(&mut course.current);
        if !slice.warmup {
            course.busy += Duration::from_nanos(now - start);
            course.rounds.push(latencies);
            course.client.add(cpu::read(own).context("own CPU time")?.since(client_before));
        }
        Ok(())
    }

    fn issue(&self, stage: &mut Stage, course: &mut Course) -> Result<()> {
        let mut payload = vec![b'.'; self.payload_bytes];
        for client in std::mem::take(&mut course.free) {
            let line = &mut course.lines[client];
            line.sequence += 1;
            payload[..8].copy_from_slice(&line.sequence.to_be_bytes());
            let id = if self.qos > 0 { mqtt::packet_id(line.sequence) } else { 0 };
            let packet = mqtt::publish(&topic(client), self.qos, id, &payload);
            (line.copy, line.puback) = (false, self.qos == 0);
            line.issued_ns = now_ns();
            course.waiting += 1;
            stage.send(course.fleet, client, &packet)?;
        }
        stage.flush()
    }
}

impl Course {
    fn arrived(&mut self, arrival: &Arrival<'_>, qos: u8) -> Result<()> {
        if arrival.fleet != self.fleet {
            bail!("a target that has no turn sent {:?}", arrival.packet);
        }
        let client = arrival.client;
        let line = &mut self.lines[client];
        match arrival.packet {
            Packet::Publish { payload, .. } => {
                let head = payload.first_chunk::<8>().context("a payload below 8 bytes")?;
                let got = u64::from_be_bytes(*head);
                if line.copy || got != line.sequence {
                    bail!("connection {client} got echo {got}, expected {}", line.sequence);
                }
                line.copy = true;
            }
            Packet::Puback(id) if qos > 0 && id == mqtt::packet_id(line.sequence) => {
                if line.puback {
                    bail!("connection {client} got the PUBACK of {} twice", line.sequence);
                }
                line.puback = true;
            }
            packet => bail!("connection {client} got {packet:?}"),
        }
        if line.copy && line.puback {
            self.current.push(arrival.at_ns.saturating_sub(line.issued_ns));
            self.waiting -= 1;
            self.free.push(client);
        }
        Ok(())
    }
}

fn topic(client: usize) -> String {
    format!("mqttshim/echo/{}/{client}", std::process::id())
}

fn row(mut course: Course, contestant: &Contestant, connections: usize) -> Row {
    let rounds: Vec<Summary> = course.rounds.iter_mut().map(|round| summarise(round)).collect();
    let latency = summarise(&mut course.rounds.concat());
    Row {
        target: contestant.target.name.clone(),
        size: connections,
        operations: latency.count as u64,
        per_second: Some(latency.count as f64 / course.busy.as_secs_f64()),
        latency,
        rounds,
        processes: course.meter.spent(contestant),
        client: course.client,
        late: 0,
        ratio: None,
        ratios: Vec::new(),
    }
}
