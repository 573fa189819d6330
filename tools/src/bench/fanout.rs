//! One publisher, N subscribers, one topic: how long until the last subscriber has the message?
//!
//! ```text
//! publisher ──PUBLISH(sequence)──► target ══► subscriber 1 … N        latency = last arrival − issue
//! ```
//!
//! Open loop: messages are issued at the asked rate whether or not the ones before are complete; a message is late only
//! if this program is, which is counted. Every subscriber must get every message exactly once, in order, or the run
//! fails. All targets stay connected while they take turns.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu::{self, Cost, Subject};
use super::ledger::Ledger;
use super::measure::{Contestant, Meter, Summary, summarise};
use super::mqtt::{self, Greeting, Packet};
use super::report::Row;
use super::rounds::{self, Slice, Stop};
use super::stage::{Arrival, Stage};
use super::transport::{Transport, now_ns};

/// How long a message may take before it counts as lost.
const LOST_NS: u64 = 10_000_000_000;
/// Messages under way at most: beyond this the target cannot keep up at all.
const OUTSTANDING_MAX: usize = 10_000;
/// Client number of the publisher; subscribers follow.
const PUBLISHER: usize = 0;

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Fanout {
    /// Messages a second.
    pub(crate) rate: f64,
    /// Bytes of application message, at least the 8 of the sequence number.
    pub(crate) payload_bytes: usize,
    /// 0 or 1.
    pub(crate) qos: u8,
    /// Counted time per target and number of subscribers.
    pub(crate) duration: Duration,
    /// Uncounted time before it.
    pub(crate) warmup: Duration,
    /// Length of one turn.
    pub(crate) slice: Duration,
    /// What CONNECT says.
    pub(crate) greeting: Greeting,
}

/// One target's progress at one number of subscribers.
#[derive(Debug)]
struct Course {
    fleet: usize,
    ledger: Ledger,
    /// Latencies of the counted slices, one list per round.
    rounds: Vec<Vec<u64>>,
    /// Latencies of the current slice.
    current: Vec<u64>,
    meter: Meter,
    client: Cost,
    pubacks: u64,
    late: u64,
}

impl Fanout {
    /// Measures all contestants with `subscribers` subscribers each; one row per contestant.
    pub(crate) fn measure(
        &self,
        transport: Box<dyn Transport>,
        contestants: &[Contestant],
        subscribers: usize,
        stop: &Stop,
    ) -> Result<(Vec<Row>, String)> {
        let mut stage = Stage::new(transport, self.qos, self.greeting.clone(), stop.clone());
        let topic = format!("mqttshim/bench/{}", std::process::id());
        let mut courses = Vec::new();
        for contestant in contestants {
            let mut filters = vec![Some(topic.clone()); subscribers + 1];
            filters[PUBLISHER] = None;
            let target = &contestant.target;
            let fleet = stage.bring_up(&target.name, target.address, filters)?;
            courses.push(Course {
                fleet,
                ledger: Ledger::new(subscribers),
                rounds: Vec::new(),
                current: Vec::new(),
                meter: Meter::new(contestant),
                client: Cost::default(),
                pubacks: 0,
                late: 0,
            });
        }
        let plan = rounds::plan(contestants.len(), self.warmup, self.duration, self.slice);
        for slice in plan {
            stage.keep_alive()?;
            let contestant = &contestants[slice.target];
            let course = &mut courses[slice.target];
            self.run_slice(&mut stage, contestant, course, &topic, slice).with_context(|| {
                format!("{}, {subscribers} subscribers", contestant.target.name)
            })?;
        }
        let client = stage.transport().describe();
        stage.tear_down()?;
        let row = |(course, contestant)| row(course, contestant, subscribers);
        Ok((courses.into_iter().zip(contestants).map(row).collect(), client))
    }

    fn run_slice(
        &self,
        stage: &mut Stage,
        contestant: &Contestant,
        course: &mut Course,
        topic: &str,
        slice: Slice,
    ) -> Result<()> {
        let own = Subject::Process(std::process::id());
        let client_before = cpu::read(own).context("own CPU time")?;
        course.meter.start(contestant)?;
        let late = course.late;
        self.publish_all(stage, course, topic, slice.length)?;
        // What is still being tidied up belongs to this slice.
        settle(stage, course)?;
        course.meter.stop(contestant, !slice.warmup)?;
        let latencies = std::mem::take(&mut course.current);
        if slice.warmup {
            course.late = late;
        } else {
            course.rounds.push(latencies);
            course.client.add(cpu::read(own).context("own CPU time")?.since(client_before));
        }
        Ok(())
    }

    fn publish_all(
        &self,
        stage: &mut Stage,
        course: &mut Course,
        topic: &str,
        length: Duration,
    ) -> Result<()> {
        let total = (self.rate * length.as_secs_f64()).round().max(1.0);
        let interval_ns = 1e9 / self.rate;
        let start = now_ns();
        let due = |count: f64| start + (count * interval_ns) as u64;
        let mut issued = 0.0;
        let mut last_ns = start;
        while issued < total || course.unfinished(self.qos) {
            let now = now_ns();
            if issued < total && now >= due(issued) {
                course.late += u64::from(now > due(issued) + 1_000_000);
                self.issue(stage, course, topic)?;
                issued += 1.0;
                last_ns = now;
            } else if issued >= total && now > last_ns + LOST_NS {
                return Err(course.lost());
            }
            if course.ledger.outstanding() > OUTSTANDING_MAX {
                bail!("cannot keep up: {OUTSTANDING_MAX} messages are under way; lower --rate");
            }
            let until = if issued < total { due(issued) } else { now + 2_000_000 };
            let wait = Duration::from_nanos(until.saturating_sub(now_ns()).min(5_000_000));
            stage.pump(wait, &mut |arrival| course.arrived(&arrival))?;
        }
        Ok(())
    }

    fn issue(&self, stage: &mut Stage, course: &mut Course, topic: &str) -> Result<()> {
        let sequence = course.ledger.next_sequence();
        let mut payload = vec![b'.'; self.payload_bytes];
        payload[..8].copy_from_slice(&sequence.to_be_bytes());
        let id = if self.qos > 0 { mqtt::packet_id(sequence) } else { 0 };
        let packet = mqtt::publish(topic, self.qos, id, &payload);
        course.ledger.issue(now_ns());
        stage.send(course.fleet, PUBLISHER, &packet)?;
        stage.flush()
    }
}

impl Course {
    fn arrived(&mut self, arrival: &Arrival<'_>) -> Result<()> {
        if arrival.fleet != self.fleet {
            bail!("a target that has no turn sent {:?}", arrival.packet);
        }
        match (arrival.client, arrival.packet) {
            (PUBLISHER, Packet::Puback(_)) => self.pubacks += 1,
            (PUBLISHER, packet) => bail!("the publisher got {packet:?}"),
            (client, Packet::Publish { payload, dup, .. }) => {
                let head = payload.first_chunk::<8>().context("a payload below 8 bytes")?;
                let got = u64::from_be_bytes(*head);
                if dup {
                    bail!("subscriber {client} got message {got} marked as a duplicate");
                }
                if let Some(done) = self.ledger.deliver(client - 1, got, arrival.at_ns)? {
                    self.current.push(done.latency_ns);
                }
            }
            (client, packet) => bail!("subscriber {client} got {packet:?}"),
        }
        Ok(())
    }

    /// Whether anything is still under way.
    fn unfinished(&self, qos: u8) -> bool {
        let acked = qos == 0 || self.pubacks == self.ledger.next_sequence();
        self.ledger.outstanding() > 0 || !acked
    }

    fn lost(&self) -> anyhow::Error {
        let missing = self.ledger.missing();
        if missing.is_empty() {
            let (got, sent) = (self.pubacks, self.ledger.next_sequence());
            return anyhow::anyhow!("only {got} of {sent} PUBACKs came");
        }
        let named: Vec<_> = missing.iter().take(5).map(ToString::to_string).collect();
        let more = if missing.len() > named.len() { ", …" } else { "" };
        anyhow::anyhow!(
            "messages are lost: after {} s {} subscribers still wait for one (subscribers {}{more})",
            LOST_NS / 1_000_000_000,
            missing.len(),
            named.join(", ")
        )
    }
}

/// Keeps handling arrivals for three milliseconds: PUBACKs of ours are sent, and nothing may be delivered twice.
fn settle(stage: &mut Stage, course: &mut Course) -> Result<()> {
    let until = now_ns() + 3_000_000;
    while now_ns() < until {
        stage.pump(Duration::from_millis(1), &mut |arrival| course.arrived(&arrival))?;
    }
    Ok(())
}

fn row(mut course: Course, contestant: &Contestant, subscribers: usize) -> Row {
    let rounds: Vec<Summary> = course.rounds.iter_mut().map(|round| summarise(round)).collect();
    let mut all = course.rounds.concat();
    let latency = summarise(&mut all);
    Row {
        target: contestant.target.name.clone(),
        size: subscribers,
        operations: latency.count as u64 * subscribers as u64,
        per_second: None,
        latency,
        rounds,
        processes: course.meter.spent(contestant),
        client: course.client,
        late: course.late,
        ratio: None,
        ratios: Vec::new(),
    }
}
