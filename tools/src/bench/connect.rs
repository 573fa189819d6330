//! One client after another connects, is greeted and leaves: how fast are connections made?
//!
//! ```text
//! TCP connect ──► CONNECT ──► CONNACK ──► DISCONNECT, close ──► the next one
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cpu::{self, Cost, Subject};
use super::measure::{Contestant, Meter, Summary, summarise};
use super::mqtt::{self, Greeting};
use super::report::Row;
use super::rounds::{self, Slice, Stop};

/// How long a server may take to answer.
const LOST: Duration = Duration::from_secs(10);
/// CONNACK: accepted, no session present (MQTT 3.1.1 §3.2).
const CONNACK: [u8; 4] = [0x20, 2, 0, 0];

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    /// Counted time per target.
    pub(crate) duration: Duration,
    /// Uncounted time before it.
    pub(crate) warmup: Duration,
    /// Length of one turn.
    pub(crate) slice: Duration,
    /// What CONNECT says.
    pub(crate) greeting: Greeting,
}

struct Course {
    rounds: Vec<Vec<u64>>,
    busy: Duration,
    meter: Meter,
    client: Cost,
}

impl Connect {
    /// Measures all contestants; one row per contestant.
    pub(crate) fn measure(&self, contestants: &[Contestant], stop: &Stop) -> Result<Vec<Row>> {
        let hello = mqtt::connect("mqttshim-bench-connect", &self.greeting);
        let new = |contestant| Course {
            rounds: Vec::new(),
            busy: Duration::ZERO,
            meter: Meter::new(contestant),
            client: Cost::default(),
        };
        let mut courses: Vec<Course> = contestants.iter().map(new).collect();
        for slice in rounds::plan(contestants.len(), self.warmup, self.duration, self.slice) {
            stop.check()?;
            let contestant = &contestants[slice.target];
            run_slice(&hello, contestant, &mut courses[slice.target], slice)
                .with_context(|| contestant.target.name.clone())?;
        }
        Ok(courses.into_iter().zip(contestants).map(|(course, of)| row(course, of)).collect())
    }
}

fn run_slice(
    hello: &[u8],
    contestant: &Contestant,
    course: &mut Course,
    slice: Slice,
) -> Result<()> {
    let own = Subject::Process(std::process::id());
    let client_before = cpu::read(own).context("own CPU time")?;
    course.meter.start(contestant)?;
    let start = Instant::now();
    let mut latencies = Vec::new();
    while start.elapsed() < slice.length {
        let began = Instant::now();
        visit(contestant.target.address, hello)?;
        latencies.push(u64::try_from(began.elapsed().as_nanos()).context("a visit of years")?);
    }
    course.meter.stop(contestant, !slice.warmup)?;
    if !slice.warmup {
        course.busy += start.elapsed();
        course.rounds.push(latencies);
        course.client.add(cpu::read(own).context("own CPU time")?.since(client_before));
    }
    Ok(())
}

fn visit(address: SocketAddr, hello: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, LOST).context("cannot connect")?;
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    stream.set_read_timeout(Some(LOST)).context("a time-out")?;
    stream.write_all(hello).context("CONNECT")?;
    let mut answer = [0; CONNACK.len()];
    stream.read_exact(&mut answer).context("no CONNACK")?;
    if answer != CONNACK {
        bail!("refused: {answer:02x?} instead of a CONNACK that accepts");
    }
    stream.write_all(&mqtt::DISCONNECT).context("DISCONNECT")
}

fn row(mut course: Course, contestant: &Contestant) -> Row {
    let rounds: Vec<Summary> = course.rounds.iter_mut().map(|round| summarise(round)).collect();
    let latency = summarise(&mut course.rounds.concat());
    Row {
        target: contestant.target.name.clone(),
        size: 1,
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
