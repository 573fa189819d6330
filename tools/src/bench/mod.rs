//! `mqttshim bench`: how fast servers are, measured in turn in one run.
//!
//! ```text
//! arguments ──► contestants, transport ──► fanout │ echo ──► report ──► table, JSON, page
//!                                            │
//!                                  stage: all clients ── transport: kernel │ wire
//! ```
//!
//! Measures MQTT 3.1.1 over plain TCP at QoS 0 and 1. Starts no server; only the bare sender is ours.

mod bare;
mod cpu;
mod echo;
mod fanout;
mod kernel;
mod ledger;
mod measure;
mod mqtt;
mod report;
mod rounds;
mod stage;
mod target;
mod transport;
mod wire;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use self::bare::BareSender;
use self::cpu::Subject;
use self::echo::Echo;
use self::fanout::Fanout;
use self::kernel::KernelTransport;
use self::measure::Contestant;
use self::report::{Described, Kind, Report};
use self::rounds::Stop;
use self::target::Target;
use self::transport::Transport;
use self::wire::veth::VethPair;
use self::wire::{WireConfig, WireTransport};

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One publisher, N subscribers: time until the last subscriber has the message
    #[command(after_long_help = FANOUT_HELP)]
    Fanout(FanoutArgs),
    /// Every connection publishes to itself: throughput of what is not distributed
    #[command(after_long_help = ECHO_HELP)]
    Echo(EchoArgs),
}

const FANOUT_HELP: &str = "\
Examples:
  Two brokers through the machine's own sockets, and a bare send loop beside them:
    mqttshim bench fanout --bare-send \\
        --target plain=127.0.0.1:1883,pid=$(pidof mosquitto) --target ours=127.0.0.1:1884

  Only the servers' kernel in the figures, 1,000 subscribers, as root; the servers listen on 0.0.0.0:
    mqttshim bench fanout --client wire --setup-veth --subscribers 1000 \\
        --target plain=1883,pid=4711 --target ours=1884,pid=4712+4713 --json out.json --html out.html

The first target is what the others are compared with. Targets take turns in slices, in alternating order.
Figures: from issuing a PUBLISH to its arrival at the last subscriber. With --client wire the kernel stamps arrivals
when they reach the interface. CPU counts user and system time of the named processes, interrupt work included that the
kernel does while they run; what it does while this program runs is this program's (\"client\" in the JSON).

Exit status: 0 measured; 1 something failed, a lost, repeated or reordered message included; 2 wrong usage.";

const ECHO_HELP: &str = "\
Example:
    mqttshim bench echo --connections 1,50 \\
        --target plain=127.0.0.1:1883,pid=4711 --target ours=127.0.0.1:1884,pid=4712+4713

Each connection subscribes to a topic of its own and publishes to it; the next message leaves when the copy and the
PUBACK of the one before are back. Wake-ups are the voluntary context switches of all threads.

Exit status: 0 measured; 1 something failed, a lost or repeated message included; 2 wrong usage.";

/// What both measurements take.
#[derive(Args, Debug)]
pub(crate) struct CommonArgs {
    /// A server: its name in the report, where it listens, the processes whose CPU time is its cost
    #[arg(long = "target", value_name = "NAME=HOST:PORT[,pid=N[+N…]]")]
    targets: Vec<Target>,
    /// How to reach the servers: this machine's sockets, or raw frames on an interface
    #[arg(long, value_enum, default_value_t = Client::Kernel)]
    client: Client,
    /// The clients' end of the link, for --client wire
    #[arg(long, value_name = "IF", conflicts_with = "setup_veth")]
    interface: Option<String>,
    /// An address that no machine owns, for --client wire [default: the one after the target's]
    #[arg(long, value_name = "CIDR", conflicts_with = "setup_veth")]
    client_address: Option<Cidr>,
    /// Make a veth pair for this run; targets are then reached at its address, so HOST is ignored (root)
    #[arg(long)]
    setup_veth: bool,
    /// How long acknowledgements wait, for --client wire [default: until a burst of frames ends, at most 5]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=500))]
    ack_delay: Option<u64>,
    /// Bytes of payload, at least 8
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    payload: u32,
    /// Quality of service of publisher and subscribers
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: Option<u8>,
    /// Counted time for each target at each size
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Uncounted time before it
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    warmup: Duration,
    /// Length of one turn
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    slice: Duration,
    /// Keep Alive of the clients
    #[arg(long, value_name = "S", default_value_t = 60)]
    keepalive: u16,
    /// Write every number to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with a chart to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Arguments of `bench fanout`.
#[derive(Args, Debug)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Numbers of subscribers, one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,10,100,1000", value_parser = clap::value_parser!(u32).range(1..))]
    subscribers: Vec<u32>,
    /// Messages a second
    #[arg(long, value_name = "PPS", default_value_t = 50.0, value_parser = rate)]
    rate: f64,
    /// Also measure a loop of send() in this program, with no broker at all
    #[arg(long)]
    bare_send: bool,
}

/// Arguments of `bench echo`.
#[derive(Args, Debug)]
pub(crate) struct EchoArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Numbers of connections, one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,50", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Vec<u32>,
}

/// How clients reach the servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Client {
    /// This machine's sockets
    Kernel,
    /// TCP of our own on raw frames
    Wire,
}

/// An address, with or without a prefix length; the link is searched by ARP, so the length is not needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Cidr(Ipv4Addr);

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        if !length.parse::<u8>().is_ok_and(|length| length <= 32) {
            return Err(format!("{length:?} is not a prefix length"));
        }
        address.parse().map(Cidr).map_err(|_| format!("{address:?} is not an IPv4 address"))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if !(0.0..=3600.0).contains(&seconds) {
        return Err("expected 0 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if rate > 0.0 && rate <= 1_000_000.0 {
        Ok(rate)
    } else {
        Err("expected more than 0, at most a million".to_owned())
    }
}

/// The scene of a run: who is measured, and how they are reached.
struct Scene {
    contestants: Vec<Contestant>,
    // Declared in this order so that the sender is gone before its interface.
    _bare: Option<BareSender>,
    veth: Option<VethPair>,
    wire: Option<WireConfig>,
    stop: Stop,
}

impl Scene {
    fn new(args: &CommonArgs, bare_send: bool, connections: u64) -> Result<Scene> {
        if args.targets.is_empty() && !bare_send {
            bail!("nothing to measure: name at least one --target");
        }
        if args.slice.is_zero() || args.duration.is_zero() {
            bail!("--slice and --duration must be more than zero");
        }
        let stop = Stop::on_signals()?;
        raise_descriptor_limit(connections)?;
        let veth = args.setup_veth.then(VethPair::create).transpose()?;
        let server = veth.as_ref().map(|pair| IpAddr::V4(pair.server));
        let moved = |target: &Target| server.map_or_else(|| target.clone(), |ip| target.at(ip));
        let mut targets: Vec<_> = args.targets.iter().map(moved).collect();
        let mut contestants: Vec<_> =
            targets.iter().cloned().map(Contestant::new).collect::<Result<_>>()?;
        let mut bare = None;
        if bare_send {
            let ip = server.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            if args.client == Client::Wire && server.is_none() {
                bail!("--bare-send with --client wire needs --setup-veth");
            }
            let sender = BareSender::start(ip)?;
            let name = "bare send loop".to_owned();
            let target = Target { name, address: sender.address, pids: Vec::new() };
            let subjects = vec![("thread".to_owned(), Subject::OwnThread(sender.thread))];
            targets.push(target.clone());
            contestants.push(Contestant { target, subjects });
            bare = Some(sender);
        }
        let wire = wire_config(args, veth.as_ref(), &targets)?;
        Ok(Scene { contestants, _bare: bare, veth, wire, stop })
    }

    fn transport(&self) -> Result<Box<dyn Transport>> {
        Ok(match &self.wire {
            Some(config) => Box::new(WireTransport::new(config.clone())?),
            None => Box::new(KernelTransport::new()?),
        })
    }

    fn describe(&self, report: &mut Report) {
        for contestant in &self.contestants {
            let target = &contestant.target;
            report.targets.push(Described {
                name: target.name.clone(),
                address: target.address.to_string(),
                commands: target.pids.iter().filter_map(|&pid| cpu::command_line(pid)).collect(),
            });
        }
        if let Some(pair) = &self.veth {
            report.notes.push(format!("veth pair made for this run, server's end {}", pair.server));
        }
    }
}

fn wire_config(
    args: &CommonArgs,
    veth: Option<&VethPair>,
    targets: &[Target],
) -> Result<Option<WireConfig>> {
    if args.client == Client::Kernel {
        if args.interface.is_some() || args.setup_veth || args.client_address.is_some() {
            bail!("--interface, --client-address and --setup-veth belong to --client wire");
        }
        return Ok(None);
    }
    let ack_delay = args.ack_delay.map(Duration::from_millis);
    if let Some(pair) = veth {
        let interface = pair.client_end.clone();
        return Ok(Some(WireConfig { interface, address: pair.client, ack_delay }));
    }
    let Some(interface) = args.interface.clone() else {
        bail!("--client wire needs --interface IF, or --setup-veth to make one");
    };
    let address = match (args.client_address, targets.first().map(|target| target.address.ip())) {
        (Some(Cidr(address)), _) => address,
        (None, Some(IpAddr::V4(first))) => beside(first),
        _ => bail!("--client wire speaks IPv4 only"),
    };
    Ok(Some(WireConfig { interface, address, ack_delay }))
}

/// The address next to `server`, still in the same /24 and neither its first nor its last.
fn beside(server: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, d] = server.octets();
    Ipv4Addr::new(a, b, c, if d < 254 { d + 1 } else { d - 1 })
}

fn raise_descriptor_limit(connections: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let needed = connections + 64;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
        .context("cannot raise the limit of open descriptors")?;
    if wanted < needed {
        bail!("{needed} descriptors are needed and the hard limit is {wanted}: raise `ulimit -Hn`");
    }
    Ok(())
}

/// Runs `mqttshim bench …`.
pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    let (report, common) = match bench {
        Bench::Fanout(args) => (run_fanout(args)?, &args.common),
        Bench::Echo(args) => (run_echo(args)?, &args.common),
    };
    report.save(common.json.as_deref(), common.html.as_deref())?;
    write!(std::io::stdout(), "{}", report.to_text()).context("cannot print the table")?;
    Ok(ExitCode::SUCCESS)
}

fn run_fanout(args: &FanoutArgs) -> Result<Report> {
    let common = &args.common;
    let qos = common.qos.unwrap_or(0);
    let most = u64::from(args.subscribers.iter().copied().max().unwrap_or(0)) + 1;
    // The bare sender's ends of its connections are descriptors of this process too.
    let scene = Scene::new(common, args.bare_send, most * (common.targets.len() as u64 + 2))?;
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
        keepalive_s: common.keepalive,
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
    let scene = Scene::new(common, false, most * common.targets.len() as u64)?;
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
        keepalive_s: common.keepalive,
    };
    for &connections in &args.connections {
        let transport = scene.transport()?;
        let size = connections as usize;
        let (rows, client) = echo.measure(transport, &scene.contestants, size, &scene.stop)?;
        add_rows(&mut report, rows, client);
    }
    Ok(report)
}

fn add_rows(report: &mut Report, rows: Vec<report::Row>, client: String) {
    report.rows.extend(rows);
    if !report.notes.contains(&client) {
        report.notes.push(client);
    }
}

/// Notes on rows whose figures say less than they seem to.
fn doubts(rows: &[report::Row], rate: f64) -> Vec<String> {
    let named = |doubtful: &dyn Fn(&report::Row) -> bool| {
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
