//! `mqttshim bench`: how fast servers are, measured in turn in one run.
//!
//! ```text
//! arguments ──► contestants, transport ──► fanout │ echo │ connect ──► report ──► table, JSON, page
//!                                            │
//!                                  stage: all clients ── transport: kernel │ wire
//! ```
//!
//! Measures MQTT 3.1.1 over plain TCP at QoS 0 and 1. Starts no server; only the bare sender is ours.

mod answer;
mod args;
mod bare;
mod connect;
mod cpu;
mod echo;
mod fanout;
mod hold;
mod kernel;
mod ledger;
mod measure;
mod mqtt;
mod ready;
mod report;
mod rounds;
mod scene;
mod several;
mod stage;
mod target;
mod transport;
mod wire;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;

pub(crate) use self::args::Bench;
use self::args::{Client, CommonArgs, ConnectArgs, EchoArgs, FanoutArgs, HoldArgs};
use self::connect::Connect;
use self::echo::Echo;
use self::fanout::Fanout;
use self::hold::Hold;
use self::measure::Contestant;
use self::mqtt::Greeting;
use self::report::{Kind, Report, Row};
use self::rounds::Stop;
use self::scene::Scene;

/// Runs `mqttshim bench …`.
pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    let (report, json, html) = match bench {
        Bench::Hold(args) => {
            hold::print(&run_hold(args)?, args.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        Bench::Fanout(args) => (run_fanout(args)?, &args.common.json, &args.common.html),
        Bench::Echo(args) => (run_echo(args)?, &args.common.json, &args.common.html),
        Bench::Connect(args) => (run_connect(args)?, &args.json, &None),
    };
    report.save(json.as_deref(), html.as_deref())?;
    write!(std::io::stdout(), "{}", report.to_text()).context("cannot print the table")?;
    Ok(ExitCode::SUCCESS)
}

fn run_fanout(args: &FanoutArgs) -> Result<Report> {
    let common = &args.common;
    let qos = common.qos.unwrap_or(0);
    let most = u64::from(args.subscribers.iter().copied().max().unwrap_or(0)) + 1;
    // The bare sender's ends of its connections are descriptors of this process too.
    let all = most * (common.targets.len() as u64 + 2);
    let scene = Scene::new(common, args.bare_send, &args.ready_frames, (most, all))?;
    let summary = format!(
        "{} B payload · QoS {qos} · {} messages/s · {} s each in turns of {} s · {}",
        common.payload,
        args.rate,
        common.duration.as_secs_f64(),
        common.slice.as_secs_f64(),
        client_text(common.client)
    );
    let mut settings = settings(common, qos);
    settings["rate_per_second"] = json!(args.rate);
    settings["subscribers"] = json!(args.subscribers);
    let mut report = Report::new(Kind::Fanout, summary, settings);
    scene.describe(&mut report);
    let fanout = Fanout {
        rate: args.rate,
        payload_bytes: common.payload as usize,
        qos,
        duration: common.duration,
        warmup: common.warmup,
        slice: common.slice,
        greeting: common.greeting(),
    };
    for &subscribers in &args.subscribers {
        let transport = scene.transport()?;
        let size = subscribers as usize;
        let (rows, client) = fanout.measure(transport, &scene.contestants, size, &scene.stop)?;
        add_rows(&mut report, rows, client);
    }
    report.notes.extend(doubts(&report.rows, args.rate));
    Ok(report)
}

fn run_echo(args: &EchoArgs) -> Result<Report> {
    let common = &args.common;
    let qos = common.qos.unwrap_or(1);
    let most = u64::from(args.connections.iter().copied().max().unwrap_or(0));
    let scene = Scene::new(common, false, &[], (most, most * common.targets.len() as u64))?;
    let summary = format!(
        "{} B payload · QoS {qos} · {} s each in turns of {} s · {}",
        common.payload,
        common.duration.as_secs_f64(),
        common.slice.as_secs_f64(),
        client_text(common.client)
    );
    let mut settings = settings(common, qos);
    settings["connections"] = json!(args.connections);
    let mut report = Report::new(Kind::Echo, summary, settings);
    scene.describe(&mut report);
    let echo = Echo {
        payload_bytes: common.payload as usize,
        qos,
        duration: common.duration,
        warmup: common.warmup,
        slice: common.slice,
        greeting: common.greeting(),
    };
    for &connections in &args.connections {
        let transport = scene.transport()?;
        let size = connections as usize;
        let (rows, client) = echo.measure(transport, &scene.contestants, size, &scene.stop)?;
        add_rows(&mut report, rows, client);
    }
    Ok(report)
}

fn run_connect(args: &ConnectArgs) -> Result<Report> {
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let (duration, slice) = (seconds(args.duration), seconds(args.slice));
    let summary =
        format!("{duration} s each in turns of {slice} s · {}", client_text(Client::Kernel));
    let settings = json!({
        "duration_s": duration, "warmup_s": seconds(args.warmup), "slice_s": slice,
    });
    let mut report = Report::new(Kind::Connect, summary, settings);
    let contestants: Vec<_> =
        args.targets.iter().cloned().map(Contestant::new).collect::<Result<_>>()?;
    report.targets.extend(contestants.iter().map(scene::describe));
    let connect = Connect {
        duration: args.duration,
        warmup: args.warmup,
        slice: args.slice,
        greeting: Greeting { keepalive_s: 60, user: args.user.clone() },
    };
    report.push(connect.measure(&contestants, &Stop::on_signals()?)?);
    Ok(report)
}

/// Each target by itself, on a transport of its own.
fn run_hold(args: &HoldArgs) -> Result<Vec<hold::Held>> {
    let stop = Stop::on_signals()?;
    let hold = Hold {
        connections: args.connections as usize,
        is_tcp_alone: args.tcp,
        silence: args.silence,
        // Nobody has to ask whether they live.
        greeting: Greeting { keepalive_s: 0, user: args.user.clone() },
    };
    let mut all = Vec::new();
    for target in &args.targets {
        let contestant = Contestant::new(target.clone())?;
        let mut transport = scene::transport_to(target, args.connections)?;
        let held = hold.measure(&mut *transport, &contestant, &stop);
        all.push(held.with_context(|| target.name.clone())?);
    }
    Ok(all)
}

fn add_rows(report: &mut Report, rows: Vec<Row>, client: String) {
    report.push(rows);
    if !report.notes.contains(&client) {
        report.notes.push(client);
    }
}

/// Notes on rows whose figures say less than they seem to.
fn doubts(rows: &[Row], rate: f64) -> Vec<String> {
    let named = |doubtful: &dyn Fn(&Row) -> bool| {
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| doubtful(row))
            .map(|row| format!("{} at {}", row.target, row.size))
            .collect();
        rows.join(", ")
    };
    let late = named(&|row| row.late * 20 > row.latency.count as u64);
    let queued = named(&|row| row.latency.p50_ns as f64 > 1e9 / rate);
    let mut notes = Vec::new();
    if !late.is_empty() {
        notes.push(format!("over 5 % of messages were issued more than 1 ms late: {late}"));
    }
    if !queued.is_empty() {
        notes.push(format!("at this rate messages queue behind one another: {queued}"));
    }
    notes
}

fn client_text(client: Client) -> &'static str {
    match client {
        Client::Kernel => "clients on kernel sockets",
        Client::Wire => "clients on the wire",
    }
}

fn settings(args: &CommonArgs, qos: u8) -> serde_json::Value {
    json!({
        "client": args.client,
        "interface": args.interface,
        "setup_veth": args.setup_veth,
        "ack_delay_ms": args.ack_delay,
        "payload_bytes": args.payload,
        "qos": qos,
        "duration_s": args.duration.as_secs_f64(),
        "warmup_s": args.warmup.as_secs_f64(),
        "slice_s": args.slice.as_secs_f64(),
        "keepalive_s": args.keepalive,
    })
}
