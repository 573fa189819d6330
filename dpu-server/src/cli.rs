//! The command line.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use mqttshim_agent::logs::Logs;

use crate::config::{
    ChannelChoice, Config, ConfigError, DecisionChoice, File, OlderSessionsChoice, PortChoice,
    StackChoice, StackConfig, TrustChoice,
};
use crate::{doctor, run};

/// The card: owns the TCP connections of an unmodified MQTT broker and distributes its PUBLISHes.
///
/// The broker runs with libmqttshim.so preloaded, which hands its sockets to this program: on a DPU, or, as here, on
/// another core of the same machine.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
EXAMPLES
  dpu-server run --trust suback --metrics 127.0.0.1:9184
      Serve the brokers of this machine; let the card distribute where SUBACK means permission.
  mqttshim run -- mosquitto -c mosquitto.conf
      A broker on it.
  dpu-server run --stack smoltcp --port xdp:eth1 --address 10.0.0.1/24
      TCP/IP of its own on eth1: clients on that link reach the broker at 10.0.0.1, which must be free.
  dpu-server run --stack smoltcp --port tap:mq0 --address 10.0.0.1/24 &
  ip link set mq0 up && ip address add 10.0.0.2/24 dev mq0
      The same where no driver helps, for clients on this machine; or put mq0 on a bridge.
  dpu-server check-config /etc/mqttshim/card.toml
      Look for mistakes without serving.

EXIT STATUS
  0  stopped by SIGTERM or SIGINT; or what was asked for was done
  1  something does not allow it; the message says what to do. A second signal while stopping
  2  the command line is not understood";

const RUN_HELP: &str = "\
CONFIGURATION FILE
  TOML. Every option but --config is a key of the same name with _ for -; one that can be given
  several times is a list: address = [\"10.0.0.1/24\"]. The command line goes before the file. Beside
  them a section [limits], which has no options:
    sockets_max             sockets of all brokers [what the descriptors allow]
    sessions_per_uid_max    brokers of one user [256]
    inspect_bytes_max       largest payload the card distributes [65536]
    outbox_bytes_max        bytes of copies waiting for one subscriber [71303168]
    outbox_messages_max     copies waiting for one subscriber [1000]
    outbox_total_bytes_max  bytes of copies waiting for all subscribers of a broker [268435456]
    subscriptions_max       subscriptions of a broker [1000000]
    topic_levels_max        levels of a topic [128]
    mqtt_sessions_max       MQTT sessions of a broker, connected or not [250000]
    unanswered_max          filters in requests of one client without an answer [16384]
    inflight_messages_max   the broker's max_inflight_messages, until it has told; 0: no limit [20]
    queued_messages_max     copies with QoS 1 that wait for one subscriber's acknowledgements [1000]
    routes_max              topics of a broker whose subscribers are remembered [4096]
  At a limit the broker does the work, or a copy is dropped and counted.

SIGNALS
  SIGTERM, SIGINT  accept nothing more, let clients take what is left for at most 5 s, FIN, exit 0
  a second one     exit at once";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve brokers until SIGTERM.
    Run(Run),
    /// Read a configuration file, say what is wrong with it, serve nothing.
    CheckConfig {
        /// The TOML file.
        file: PathBuf,
    },
    /// Show the stacks and channels of this build, and what of them this machine refuses.
    List,
    /// Check what `run` needs: descriptors, io_uring, the session path, the port.
    Doctor(Run),
    /// Print a completion script for this shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
struct Run {
    /// Read this TOML file first.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where programs find the agent [default: /run/mqttshim/session.sock for root, else
    /// $XDG_RUNTIME_DIR/mqttshim/session.sock, else mqttshim-UID/session.sock in the temporary folder].
    #[arg(long, value_name = "PATH")]
    session: Option<PathBuf>,
    /// Let only members of this group open a session.
    #[arg(long, value_name = "NAME")]
    session_group: Option<String>,
    /// How the host is reached: `local`, the agent inside this process, or `emulated:PATH`, a mqttshim-agent of this machine
    /// connects to PATH [default: local].
    #[arg(long, value_name = "local|emulated:PATH")]
    channel: Option<ChannelChoice>,
    /// Where the connections live: `kernel`, this machine's own sockets, or `smoltcp`, TCP/IP of our own on --port, with
    /// --address [default: kernel].
    #[arg(long, value_name = "kernel|smoltcp")]
    stack: Option<StackChoice>,
    /// Where the frames of --stack smoltcp come from: `xdp:INTERFACE`, an interface of this machine, of whose frames those to
    /// --address are the card's and all others stay with the kernel (AF_XDP; CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF);
    /// `tap:INTERFACE`, a TAP device, which is made if there is none
    /// (CAP_NET_ADMIN, unless it was made for this user); `mem:PATH`, memory shared with whoever connects to PATH, as
    /// `mqttshim bench` does.
    #[arg(long, value_name = "xdp:INTERFACE|tap:INTERFACE|mem:PATH")]
    port: Option<PortChoice>,
    /// An address of --stack smoltcp, with the length of its network. Can be given several times.
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    address: Vec<String>,
    /// Where --stack smoltcp sends what is for other networks; only connections that the broker itself makes need it.
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
    /// The VLAN whose tag (IEEE 802.1Q) the frames of --port xdp:INTERFACE carry, 1 to 4094. The driver must leave the tags where they
    /// are: ethtool -K INTERFACE rxvlan off.
    #[arg(long, value_name = "ID")]
    vlan: Option<u16>,
    /// How much memory the buffers of all connections of --stack smoltcp take together, in bytes. Beyond it no connection begins, and
    /// those that are there keep 2 KiB each way [default: 268435456].
    #[arg(long, value_name = "BYTES")]
    buffers_bytes_max: Option<usize>,
    /// How much one client of --stack smoltcp may have sent that the broker has not read, in bytes, if the broker does not set SO_RCVBUF
    /// [default: 65535].
    #[arg(long, value_name = "BYTES")]
    receive_buffer_bytes: Option<usize>,
    /// How much may be on its way to one client of --stack smoltcp, in bytes, if the broker does not set SO_SNDBUF [default: 65536].
    #[arg(long, value_name = "BYTES")]
    send_buffer_bytes: Option<usize>,
    /// How the card learns who may receive what. `observed`: from what the broker delivers; on brokers other than mosquitto a topic
    /// is the card's only where every subscriber is served. `suback`: a granted SUBACK is permission; for brokers that authorise
    /// at SUBSCRIBE and PUBLISH [default: observed].
    #[arg(long, value_name = "observed|suback")]
    trust: Option<TrustChoice>,
    /// Whether the broker keeps messages with QoS 0 for sessions that are offline, as mosquitto's option of this name says. If not, an
    /// offline session is no reason to leave a PUBLISH with QoS 0 to the broker [default: true].
    #[arg(long, value_name = "true|false")]
    queue_qos0_messages: Option<bool>,
    /// Whether a broker may keep sessions from before this server, of which nobody here knows what they subscribed to. `possible`:
    /// messages with QoS 1 stay with the broker, and those with QoS 0 where the broker keeps them for sessions that are offline: as
    /// --queue-qos0-messages says, else every broker but mosquitto. `none`: for brokers that start without sessions, such as
    /// mosquitto with persistence false. `mqttshim sessions forget --all` says the same later [default: possible].
    #[arg(long, value_name = "possible|none")]
    older_sessions: Option<OlderSessionsChoice>,
    /// `live`: the card distributes what it may. `shadow`: the broker distributes everything, and the card counts and logs where it
    /// would have done something else [default: live].
    #[arg(long, value_name = "live|shadow")]
    decision: Option<DecisionChoice>,
    /// How long what was observed counts where the broker's access control can change unseen, in seconds [default: 5].
    #[arg(long, value_name = "SECONDS")]
    route_ttl: Option<u64>,
    /// A plugin of a broker, by file name or path, that neither changes nor denies messages: with it loaded the card may
    /// distribute all the same. Can be given several times. mosquitto's dynamic-security needs no such word.
    #[arg(long, value_name = "NAME")]
    trust_plugin: Vec<String>,
    /// Serve metrics in Prometheus' text form at http://HOST:PORT/metrics.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// What to log to standard error: error, warn, info, debug, trace [default: RUST_LOG, else info].
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// How long the idle server yields and looks again before it sleeps, in microseconds [default: 20].
    #[arg(long, value_name = "MICROSECONDS")]
    spin_us: Option<u64>,
}

impl Run {
    fn config(self) -> Result<Config, ConfigError> {
        let file = self.config.as_deref().map_or(Ok(File::default()), File::read)?;
        let line = File {
            session: self.session,
            session_group: self.session_group,
            channel: self.channel,
            stack: self.stack,
            port: self.port,
            address: (!self.address.is_empty()).then_some(self.address),
            gateway: self.gateway,
            vlan: self.vlan,
            buffers_bytes_max: self.buffers_bytes_max,
            receive_buffer_bytes: self.receive_buffer_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
            trust: self.trust,
            queue_qos0_messages: self.queue_qos0_messages,
            older_sessions: self.older_sessions,
            decision: self.decision,
            route_ttl: self.route_ttl,
            trust_plugin: (!self.trust_plugin.is_empty()).then_some(self.trust_plugin),
            metrics: self.metrics,
            log: self.log,
            spin_us: self.spin_us,
            ..File::default()
        };
        line.or(file).check()
    }
}

/// Runs the program with this process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nowhere to tell, if standard error takes nothing.
            let _ = writeln!(io::stderr(), "dpu-server: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, but for those whose words its text has already.
fn told(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

fn dispatch(command: Command) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match command {
        Command::Run(arguments) => {
            drop(out);
            return serve(arguments.config()?);
        }
        Command::CheckConfig { file } => check_config(&mut out, &file)?,
        Command::List => doctor::list(&mut out)?,
        Command::Doctor(arguments) => return Ok(doctor::doctor(&mut out, &arguments.config()?)?),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "dpu-server", &mut out);
        }
    }
    Ok(true)
}

fn serve(config: Config) -> anyhow::Result<bool> {
    let level = config.log.clone().or_else(|| std::env::var("RUST_LOG").ok());
    let logs = Logs::start(level.as_deref().unwrap_or("info"))?;
    abort_on_panic();
    let outcome = run::run(config);
    logs.flush();
    outcome?;
    Ok(true)
}

fn check_config(out: &mut impl Write, file: &Path) -> anyhow::Result<()> {
    let config = File::read(file)?.check()?;
    let (file, channel) = (file.display(), config.channel);
    match config.stack {
        StackConfig::Kernel => writeln!(out, "{file}: ok, channel {channel}, stack kernel")?,
        StackConfig::Smoltcp { port, .. } => {
            writeln!(out, "{file}: ok, channel {channel}, stack smoltcp on port {port}")?;
        }
    }
    Ok(())
}

/// A panic is a bug of ours, and a process with half its threads would keep brokers waiting: it ends, and its clients and
/// brokers see that.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::force_capture();
        // Not through the log thread: there may be no time for it.
        let _ = writeln!(io::stderr(), "dpu-server: {panic}\n{trace}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_limit_and_nothing_that_is_not_there() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").unwrap();
        let help = run.render_long_help().to_string();
        for word in
            ["sockets_max", "routes_max", "--trust-plugin", "--decision", "--spin-us", "SIGTERM"]
        {
            assert!(help.contains(word), "{word}");
        }
        for word in ["doca", "--device"] {
            assert!(!help.contains(word), "{word}");
        }
    }

    #[test]
    fn help_says_the_default_of_every_limit_of_the_core() {
        let is = crate::mqtt::Limits::default();
        for (key, value) in [
            ("inspect_bytes_max", is.inspect_bytes_max),
            ("outbox_bytes_max", is.outbox_bytes_max),
            ("outbox_messages_max", is.outbox_messages_max),
            ("outbox_total_bytes_max", is.outbox_total_bytes_max),
            ("subscriptions_max", is.subscriptions_max),
            ("topic_levels_max", is.topic_levels_max),
            ("mqtt_sessions_max", is.sessions_max),
            ("unanswered_max", is.unanswered_max),
            ("inflight_messages_max", is.inflight_messages_max.into()),
            ("queued_messages_max", is.queued_messages_max),
            ("routes_max", is.routes_max),
        ] {
            let line = RUN_HELP.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
            assert!(line.ends_with(&format!("[{value}]")), "{line}, and it is {value}");
        }
    }

    #[test]
    fn help_says_what_buffers_take_if_nothing_is_set() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").unwrap();
        let is = crate::stack::smoltcp::BufferBytes::default();
        for (name, value) in [
            ("buffers_bytes_max", is.total_max),
            ("receive_buffer_bytes", is.receive),
            ("send_buffer_bytes", is.send),
        ] {
            let argument = run.get_arguments().find(|it| it.get_id() == name).unwrap();
            let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string();
            assert!(help.ends_with(&format!("[default: {value}]")), "{help}, and it is {value}");
        }
    }

    #[test]
    fn a_channel_that_this_build_lacks_is_refused_with_those_it_has() {
        let error = Cli::try_parse_from(["dpu-server", "run", "--channel", "doca"]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no DOCA") && text.contains("emulated:PATH"), "{text}");
        assert_eq!(error.exit_code(), 2);
    }
}
