//! Who is measured, and how they are reached: everything that exists for the whole of a run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mqttshim_port::mem::Mem;
use mqttshim_port::xdp::Xdp;

use super::args::{Cidr, Client, CommonArgs, Ready};
use super::bare::BareSender;
use super::cpu;
use super::kernel::KernelTransport;
use super::measure::Contestant;
use super::ready::ReadyFrames;
use super::report::{Described, Report};
use super::rounds::Stop;
use super::several::Several;
use super::target::Target;
use super::transport::Transport;
use super::wire::veth::VethPair;
use super::wire::{CONNECTIONS_PER_ADDRESS, PortName, WireConfig, WireTransport};

/// Where ready frames come from: set aside for benchmarks (RFC 2544), and not what `--setup-veth` uses.
const READY_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 254, 1);
/// Leaves room for topic and headers in a frame of the usual size.
const READY_PAYLOAD_MAX: u32 = 1300;

/// The scene of a run: who is measured, and how they are reached.
pub(super) struct Scene {
    /// Who is measured; the first is what the others are compared with.
    pub(super) contestants: Vec<Contestant>,
    // Declared in this order so that the sender is gone before its interface.
    _bare: Option<BareSender>,
    _ready: Vec<(ReadyFrames, Option<VethPair>)>,
    veth: Option<VethPair>,
    ways: Vec<Way>,
    /// Set by a signal.
    pub(super) stop: Stop,
}

/// How some of the targets are reached.
#[derive(Debug)]
struct Way {
    targets: Vec<SocketAddr>,
    /// `None`: through this machine's sockets.
    wire: Option<WireConfig>,
}

impl Scene {
    /// Makes what the arguments ask for; `connections` is how many there will be at once, of one target and in all.
    pub(super) fn new(
        args: &CommonArgs,
        bare_send: bool,
        ready_frames: &[Ready],
        connections: (u64, u64),
    ) -> Result<Scene> {
        if args.slice.is_zero() || args.duration.is_zero() {
            bail!("--slice and --duration must be more than zero");
        }
        let stop = Stop::on_signals()?;
        // Connections on frames are no descriptors.
        let is_on_sockets = args.client == Client::Kernel || bare_send;
        if is_on_sockets && (bare_send || args.targets.iter().any(|target| target.port.is_none())) {
            raise_descriptor_limit(connections.1)?;
        }
        let veth = args.setup_veth.then(VethPair::create).transpose()?;
        let server = veth.as_ref().map(|pair| IpAddr::V4(pair.server));
        let moved = |target: &Target| match server {
            Some(ip) if target.port.is_none() => target.at(ip),
            _ => target.clone(),
        };
        let targets = args.targets.iter().map(moved);
        let mut contestants: Vec<_> = targets.map(Contestant::new).collect::<Result<_>>()?;
        let mut bare = None;
        if bare_send {
            let ip = server.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            if args.client == Client::Wire && server.is_none() {
                bail!("--bare-send with --client wire needs --setup-veth");
            }
            let sender = BareSender::start(ip)?;
            let target = Target::new("bare send loop", sender.address);
            contestants.push(Contestant::of_thread(target, sender.thread));
            bare = Some(sender);
        }
        let mut ready = Vec::new();
        for kind in ready_frames {
            let (sender, pair, contestant) = start_ready(*kind, args.payload)?;
            contestants.push(contestant);
            ready.push((sender, pair));
        }
        let targets: Vec<_> = contestants.iter().map(|it| it.target.clone()).collect();
        let ways = ways(args, veth.as_ref(), &targets, connections.0)?;
        Ok(Scene { contestants, _bare: bare, _ready: ready, veth, ways, stop })
    }

    /// A transport without connections.
    pub(super) fn transport(&self) -> Result<Box<dyn Transport>> {
        let mut parts = Vec::new();
        for way in &self.ways {
            let part: Box<dyn Transport> = match &way.wire {
                Some(config) => Box::new(WireTransport::new(config.clone())?),
                None => Box::new(KernelTransport::new()?),
            };
            parts.push((way.targets.clone(), part));
        }
        Ok(Box::new(Several::new(parts)))
    }

    /// Names everybody in the report.
    pub(super) fn describe(&self, report: &mut Report) {
        report.targets.extend(self.contestants.iter().map(describe));
        if let Some(pair) = &self.veth {
            report.notes.push(format!("veth pair made for this run, server's end {}", pair.server));
        }
    }
}

/// A transport for so many connections to one target.
pub(super) fn transport_to(target: &Target, connections: u32) -> Result<Box<dyn Transport>> {
    let connections = u64::from(connections);
    let (Some(port), IpAddr::V4(ip)) = (&target.port, target.address.ip()) else {
        raise_descriptor_limit(connections)?;
        return Ok(Box::new(KernelTransport::new()?));
    };
    let (port, addresses) = (port.clone(), addresses(connections)?);
    let config = WireConfig { port, address: beside(ip), addresses, ack_delay: None };
    Ok(Box::new(WireTransport::new(config)?))
}

/// A contestant as the report shows it.
pub(super) fn describe(contestant: &Contestant) -> Described {
    let target = &contestant.target;
    Described {
        name: target.name.clone(),
        address: target.address.to_string(),
        commands: target.pids.iter().filter_map(|&pid| cpu::command_line(pid)).collect(),
    }
}

/// Starts a card of ready frames.
fn start_ready(kind: Ready, payload: u32) -> Result<(ReadyFrames, Option<VethPair>, Contestant)> {
    if payload > READY_PAYLOAD_MAX {
        bail!("--ready-frames sends one frame a message: --payload is at most {READY_PAYLOAD_MAX}");
    }
    match kind {
        Ready::Mem => {
            let name = format!("mqttshim-bench-{}.frames", std::process::id());
            let path = std::env::temp_dir().join(name);
            let sender = ReadyFrames::start(Mem::listen(&path)?, READY_ADDRESS)?;
            let mut target = Target::new("ready frames, mem", sender.address);
            target.port = Some(PortName::Mem(path));
            let contestant = Contestant::of_thread(target, sender.thread);
            Ok((sender, None, contestant))
        }
        Ready::Xdp => {
            let pair = VethPair::create_bare(1)?;
            let port = Xdp::open(&pair.server_end, &[IpAddr::V4(pair.server)], None)?;
            let sender = ReadyFrames::start(port, pair.server)?;
            let mut target = Target::new("ready frames, xdp", sender.address);
            target.port = Some(PortName::Packet(pair.client_end.clone()));
            let contestant = Contestant::of_thread(target, sender.thread);
            Ok((sender, Some(pair), contestant))
        }
    }
}

/// How all targets are reached, for `connections` to each.
fn ways(
    args: &CommonArgs,
    veth: Option<&VethPair>,
    targets: &[Target],
    connections: u64,
) -> Result<Vec<Way>> {
    let ack_delay = args.ack_delay.map(Duration::from_millis);
    let mut ways = Vec::new();
    let usual: Vec<_> = targets.iter().filter(|target| target.port.is_none()).collect();
    if !usual.is_empty() {
        let wire = wire_config(args, veth, usual[0], connections * usual.len() as u64)?;
        ways.push(Way { targets: usual.iter().map(|target| target.address).collect(), wire });
    }
    let mut ports: Vec<&PortName> = Vec::new();
    for port in targets.iter().filter_map(|target| target.port.as_ref()) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    for port in ports {
        let there = targets.iter().filter(|target| target.port.as_ref() == Some(port));
        let targets: Vec<_> = there.map(|target| target.address).collect();
        let Some(IpAddr::V4(first)) = targets.first().map(SocketAddr::ip) else {
            bail!("our own TCP speaks IPv4 only");
        };
        let addresses = addresses(connections * targets.len() as u64)?;
        let config =
            WireConfig { port: port.clone(), address: beside(first), addresses, ack_delay };
        ways.push(Way { targets, wire: Some(config) });
    }
    Ok(ways)
}

/// How many addresses carry so many connections.
fn addresses(connections: u64) -> Result<u32> {
    let needed = connections.div_ceil(u64::from(CONNECTIONS_PER_ADDRESS)).max(1);
    u32::try_from(needed).context("too many connections")
}

/// How the targets that say nothing themselves are reached; `first` is one of them.
fn wire_config(
    args: &CommonArgs,
    veth: Option<&VethPair>,
    first: &Target,
    connections: u64,
) -> Result<Option<WireConfig>> {
    if args.client == Client::Kernel {
        if args.interface.is_some() || args.setup_veth || args.client_address.is_some() {
            bail!("--interface, --client-address and --setup-veth belong to --client wire");
        }
        return Ok(None);
    }
    let ack_delay = args.ack_delay.map(Duration::from_millis);
    let addresses = addresses(connections)?;
    if let Some(pair) = veth {
        let port = PortName::Packet(pair.client_end.clone());
        return Ok(Some(WireConfig { port, address: pair.client, addresses, ack_delay }));
    }
    let Some(interface) = args.interface.clone() else {
        bail!("--client wire needs --interface IF, or --setup-veth to make one");
    };
    let address = match (args.client_address, first.address.ip()) {
        (Some(Cidr(address)), _) => address,
        (None, IpAddr::V4(first)) => beside(first),
        _ => bail!("--client wire speaks IPv4 only"),
    };
    Ok(Some(WireConfig { port: PortName::Packet(interface), address, addresses, ack_delay }))
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
