//! `dpu-server run`: from a configuration to the running data plane.
//!
//! Whatever can be refused is refused here, before anything is served, with what to do about it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mqttshim_agent::{Agent, AgentConfig, OpenError};
use mqttshim_channel::emulated::{BindError, Listener};
use rustix::io::Errno;
use smoltcp::wire::IpCidr;

use crate::card::CardConfig;
use crate::config::{ChannelChoice, Config, PortChoice, StackConfig};
use crate::control::{self, ControlError};
use crate::descriptors::{self, TooFew};
use crate::metrics::{self, Board, ServeError};
use crate::server::{Host, RunError, Server};
use crate::stack::Stack;
use crate::stack::kernel::{Kernel, Uring};
use crate::stack::smoltcp::{BufferBytes, Smoltcp};
use mqttshim_port::Port;
use mqttshim_port::mem::{Mem, MemError};
use mqttshim_port::tap::{Tap, TapError};
use mqttshim_port::xdp::{Xdp, XdpError};

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too few descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// The kernel grants no epoll set.
    #[error("cannot wait for sockets: {0}")]
    Stack(#[source] Errno),
    /// The interface cannot be used.
    #[error("--port: {0}")]
    Xdp(#[from] XdpError),
    /// The TAP device cannot be used.
    #[error("--port: {0}")]
    Tap(#[from] TapError),
    /// Shared memory for frames cannot be had.
    #[error("--port: {0}")]
    Mem(#[from] MemError),
    /// The session path cannot be served.
    #[error(transparent)]
    Session(#[from] OpenError),
    /// The path for an agent cannot be served.
    #[error("--channel: {0}")]
    Channel(#[from] BindError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] ServeError),
    /// Operators cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No sockets for that.
    #[error("cannot serve operators: {0}")]
    Desk(#[source] std::io::Error),
    /// The data plane failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs until a signal ends it.
///
/// # Errors
/// See [`StartError`].
pub fn run(config: Config) -> Result<(), StartError> {
    let available = descriptors::raise();
    let sockets_max =
        descriptors::sockets(config.sockets_max, available, &config.channel, &config.stack)?;
    let board = Arc::new(Board::default());
    if let Some(address) = &config.metrics {
        let address = metrics::serve(address, Arc::clone(&board))?;
        tracing::info!(%address, "serving metrics");
    }
    match &config.stack {
        StackConfig::Kernel => serve(kernel()?, config, sockets_max, board)?,
        StackConfig::Smoltcp { port, addresses, gateway, vlan, buffers } => {
            tracing::info!(%port, addresses = %texts(addresses), "TCP/IP of our own");
            let (addresses, gateway) = (addresses.clone(), *gateway);
            match port {
                PortChoice::Xdp(name) => {
                    let stack = own(xdp(name, &addresses, *vlan)?, addresses, gateway, buffers)?;
                    serve(stack, config, sockets_max, board)?;
                }
                PortChoice::Tap(name) => {
                    let stack = own(tap(name)?, addresses, gateway, buffers)?;
                    serve(stack, config, sockets_max, board)?;
                }
                PortChoice::Mem(path) => {
                    let stack = own(Mem::listen(path)?, addresses, gateway, buffers)?;
                    serve(stack, config, sockets_max, board)?;
                }
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}

fn own<P: Port>(
    port: P,
    addresses: Vec<IpCidr>,
    gateway: Option<IpAddr>,
    buffers: &BufferBytes,
) -> Result<Smoltcp<P>, StartError> {
    let stack = Smoltcp::new(port, addresses, gateway).map_err(StartError::Stack)?;
    Ok(stack.with_buffers(buffers))
}

fn xdp(interface: &str, addresses: &[IpCidr], vlan: Option<u16>) -> Result<Xdp, XdpError> {
    let own: Vec<IpAddr> = addresses.iter().map(|it| it.address().into()).collect();
    let port = Xdp::open(interface, &own, vlan)?;
    let manner = port.manner();
    tracing::info!(
        interface,
        native = manner.is_native,
        zero_copy = manner.is_zero_copy,
        queues = manner.queues,
        "AF_XDP"
    );
    if !manner.was_up {
        tracing::warn!("{interface} is down and reaches nobody yet: ip link set {interface} up");
    }
    if vlan.is_some() && manner.may_strip_tags {
        tracing::warn!(
            "the driver of {interface} may take VLAN tags off before the card sees them; if nothing is reached, turn that off: ethtool \
             -K {interface} rxvlan off"
        );
    }
    Ok(port)
}

fn tap(interface: &str) -> Result<Tap, TapError> {
    let port = Tap::open(interface)?;
    if !port.was_up() {
        tracing::info!(
            "{interface} is down and reaches nobody yet: ip link set {interface} up, and an address in the card's network for \
             clients on this machine: ip address add ADDRESS/LENGTH dev {interface}"
        );
    }
    Ok(port)
}

fn texts(addresses: &[IpCidr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn serve(
    stack: impl Stack,
    config: Config,
    sockets_max: usize,
    board: Arc<Board>,
) -> Result<(), StartError> {
    let host = host(&config, sockets_max)?;
    let (counter, desk) = control::counter().map_err(StartError::Desk)?;
    let _control = control::serve(&control::path_beside(host.path()), counter)?;
    tracing::info!(sockets_max, channel = %config.channel, "serving");
    let card = CardConfig { core: config.core, sockets_max };
    let spin = Duration::from_micros(config.spin_us);
    Ok(Server::new(stack, host, card, board, desk, spin).run()?)
}

fn kernel() -> Result<Kernel, StartError> {
    let uring = match Uring::new() {
        Ok(uring) => Some(uring),
        Err(refused) => {
            tracing::warn!(%refused, "sending by plain calls: io_uring is refused");
            None
        }
    };
    Kernel::new(uring).map_err(StartError::Stack)
}

fn host(config: &Config, sockets_max: usize) -> Result<Host, StartError> {
    match &config.channel {
        ChannelChoice::Local => {
            let agent = Agent::open(AgentConfig {
                session_path: config.session.clone(),
                session_group: config.session_group.clone(),
                // At most `descriptors::SOCKETS_MAX`.
                sockets_max: sockets_max as u32,
                sessions_per_uid_max: config.sessions_per_uid_max,
            })?;
            tracing::info!(session = %agent.session_path().display(), "programs find the agent");
            Ok(Host::Local { agent: Box::new(agent), channel: None })
        }
        ChannelChoice::Emulated(path) => {
            let listener = Listener::bind(path)?;
            tracing::info!(path = %path.display(), "waiting for an agent");
            Ok(Host::Emulated { listener, path: path.clone(), watching: None })
        }
    }
}
