//! Who is measured, and how they are reached: everything that exists for the whole of a run.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::args::{Cidr, Client, CommonArgs};
use super::bare::BareSender;
use super::cpu::{self, Subject};
use super::kernel::KernelTransport;
use super::measure::Contestant;
use super::report::{Described, Report};
use super::rounds::Stop;
use super::target::Target;
use super::transport::Transport;
use super::wire::veth::VethPair;
use super::wire::{WireConfig, WireTransport};

/// The scene of a run: who is measured, and how they are reached.
pub(super) struct Scene {
    /// Who is measured; the first is what the others are compared with.
    pub(super) contestants: Vec<Contestant>,
    // Declared in this order so that the sender is gone before its interface.
    _bare: Option<BareSender>,
    veth: Option<VethPair>,
    wire: Option<WireConfig>,
    /// Set by a signal.
    pub(super) stop: Stop,
}

impl Scene {
    /// Makes what the arguments ask for; `connections` is how many there will be at once.
    pub(super) fn new(args: &CommonArgs, bare_send: bool, connections: u64) -> Result<Scene> {
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

    /// A transport without connections.
    pub(super) fn transport(&self) -> Result<Box<dyn Transport>> {
        Ok(match &self.wire {
            Some(config) => Box::new(WireTransport::new(config.clone())?),
            None => Box::new(KernelTransport::new()?),
        })
    }

    /// Names everybody in the report.
    pub(super) fn describe(&self, report: &mut Report) {
        report.targets.extend(self.contestants.iter().map(describe));
        if let Some(pair) = &self.veth {
            report.notes.push(format!("veth pair made for this run, server's end {}", pair.server));
        }
    }
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
