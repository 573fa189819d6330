//! The command line of `mqttshim bench`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::mqtt::Greeting;
use super::target::Target;

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// One publisher, N subscribers: time until the last subscriber has the message
    #[command(
        after_long_help = FANOUT_HELP,
        mut_arg("targets", |it| it.required_unless_present_any(["bare_send", "ready_frames"]))
    )]
    Fanout(FanoutArgs),
    /// Every connection publishes to itself: throughput of what is not distributed
    #[command(after_long_help = ECHO_HELP, mut_arg("targets", |it| it.required(true)))]
    Echo(EchoArgs),
    /// One client after another connects, is greeted and leaves: connections a second
    Connect(ConnectArgs),
    /// Many clients connect and are silent: connections a second, memory and CPU time of a connection that idles
    #[command(after_long_help = HOLD_HELP)]
    Hold(HoldArgs),
}

/// Shown below the options of `bench hold`.
pub(crate) const HOLD_HELP: &str = "\
Example:
    mqttshim bench hold --connections 10000 --target plain=127.0.0.1:1883,pid=4711

Exit status: 0 measured; 1 something failed, a client that lost its connection included; 2 wrong usage.";

/// Shown below the options of `bench fanout`.
pub(crate) const FANOUT_HELP: &str = "\
Examples:
  Two brokers through the machine's own sockets, and a bare send loop beside them:
    mqttshim bench fanout --bare-send \\
        --target plain=127.0.0.1:1883,pid=$(pidof mosquitto) --target ours=127.0.0.1:1884

  Only the servers' kernel in the figures, as root; the servers listen on 0.0.0.0:
    mqttshim bench fanout --client wire --setup-veth --subscribers 1000 \\
        --target plain=1883,pid=4711 --target ours=1884,pid=4712+4713 --html out.html

The first target is what the others are compared with. Targets take turns in slices, in alternating order; the range \
behind a ratio is the middle half of the slices' own ratios.

Figures go from issuing a PUBLISH to its arrival at the last subscriber. With --client wire the kernel stamps arrivals \
when they reach the interface. CPU counts user and system time of the named processes, interrupt work included that the \
kernel does while they run; what it does while this program runs is this program's (\"client\" in the JSON).

Exit status: 0 measured; 1 something failed, a lost, repeated or reordered message included; 2 wrong usage.";

/// Shown below the options of `bench echo`.
pub(crate) const ECHO_HELP: &str = "\
Example:
    mqttshim bench echo --connections 1,50 \\
        --target plain=127.0.0.1:1883,pid=4711 --target ours=127.0.0.1:1884,pid=4712+4713

Each connection subscribes to a topic of its own and publishes to it; the next message leaves when the copy and the \
PUBACK of the one before are back. Wake-ups are the voluntary context switches of all threads.

Exit status: 0 measured; 1 something failed, a lost or repeated message included; 2 wrong usage.";

/// What both measurements take.
#[derive(Args, Debug)]
pub(crate) struct CommonArgs {
    /// A server: its name in the report, where it listens, the processes whose CPU time is its cost
    ///
    /// With port= the clients of this target have TCP of their own on that port, whatever --client says: packet:INTERFACE, raw frames,
    /// or mem:PATH, the memory of a card that runs with --port mem:PATH.
    #[arg(long = "target", value_name = "NAME=HOST:PORT[,pid=N[+N…]][,port=packet:IF|mem:PATH]")]
    pub(super) targets: Vec<Target>,
    /// How to reach the servers: this machine's sockets, or raw frames on an interface
    #[arg(long, value_enum, default_value_t = Client::Kernel)]
    pub(super) client: Client,
    /// The clients' end of the link, for --client wire
    #[arg(long, value_name = "IF", conflicts_with = "setup_veth")]
    pub(super) interface: Option<String>,
    /// An address that no machine owns, for --client wire [default: the one after the target's]
    #[arg(long, value_name = "CIDR", conflicts_with = "setup_veth")]
    pub(super) client_address: Option<Cidr>,
    /// Make a veth pair for this run; targets are then reached at its address, so HOST is ignored (root)
    #[arg(long)]
    pub(super) setup_veth: bool,
    /// How long acknowledgements wait, for --client wire [default: until a burst of frames ends, at most 5]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=500))]
    pub(super) ack_delay: Option<u64>,
    /// Bytes of payload, at least 8
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    pub(super) payload: u32,
    /// Quality of service of publisher and subscribers [default: 0 for fanout, 1 for echo]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) qos: Option<u8>,
    /// Counted time for each target at each size
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(super) duration: Duration,
    /// Uncounted time before it
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(super) warmup: Duration,
    /// Length of one turn
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(super) slice: Duration,
    /// Keep Alive of the clients
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub(super) keepalive: u16,
    /// User Name and Password of the clients, where a server wants some
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub(super) user: Option<(String, String)>,
    /// Write every number to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page with a chart to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl CommonArgs {
    /// What the clients' CONNECT says.
    pub(super) fn greeting(&self) -> Greeting {
        Greeting { keepalive_s: self.keepalive, user: self.user.clone() }
    }
}

/// Arguments of `bench fanout`.
#[derive(Args, Debug)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Numbers of subscribers, one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,10,100,1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) subscribers: Vec<u32>,
    /// Messages a second
    #[arg(long, value_name = "PPS", default_value_t = 50.0, value_parser = rate)]
    pub(super) rate: f64,
    /// Also measure a loop of send() in this program, with no broker at all
    #[arg(long)]
    pub(super) bare_send: bool,
    /// Also measure a port that sends frames which are ready, with no stack at all
    #[arg(long, value_name = "PORT", value_enum)]
    pub(super) ready_frames: Vec<Ready>,
}

/// On which ports ready frames are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Ready {
    /// Memory shared with this program
    Mem,
    /// AF_XDP on one end of a veth pair made for this run, with the clients' raw frames on the other (root)
    Xdp,
}

/// Arguments of `bench echo`.
#[derive(Args, Debug)]
pub(crate) struct EchoArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Numbers of connections, one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,50", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) connections: Vec<u32>,
}

/// Arguments of `bench connect`. Always through this machine's sockets.
#[derive(Args, Debug)]
pub(crate) struct ConnectArgs {
    /// A server: its name in the report, where it listens, the processes whose CPU time is its cost
    #[arg(long = "target", value_name = "NAME=HOST:PORT[,pid=N[+N…]]", required = true)]
    pub(super) targets: Vec<Target>,
    /// Name and password of the clients
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub(super) user: Option<(String, String)>,
    /// Counted time for each target
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(super) duration: Duration,
    /// Uncounted time before it
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(super) warmup: Duration,
    /// Length of one turn
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(super) slice: Duration,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Arguments of `bench hold`.
#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// A server: its name in the report, where it listens, the processes that are looked at
    #[arg(
        long = "target",
        value_name = "NAME=HOST:PORT[,pid=N[+N…]][,port=packet:IF|mem:PATH]",
        required = true
    )]
    pub(super) targets: Vec<Target>,
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) connections: u32,
    /// Open TCP connections and send nothing at all
    #[arg(long)]
    pub(super) tcp: bool,
    /// How long they are silent
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(super) silence: Duration,
    /// Name and password of the clients
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub(super) user: Option<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
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
pub(super) struct Cidr(pub(super) Ipv4Addr);

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        if !length.parse::<u8>().is_ok_and(|length| length <= 32) {
            return Err(format!("{length:?} is not a prefix length"));
        }
        address.parse().map(Cidr).map_err(|_| format!("{address:?} is not an IPv4 address"))
    }
}

fn user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or("expected NAME:PASSWORD")?;
    // Two bytes hold a length (MQTT 3.1.1 §1.5.3).
    if name.len().max(password.len()) > usize::from(u16::MAX) {
        return Err("a name or password has at most 65535 bytes".to_owned());
    }
    Ok((name.to_owned(), password.to_owned()))
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
