//! The agent as a process of its own: relays a host's programs to a dpu-server elsewhere.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use mqttshim_agent::logs::{self, Logs};
use mqttshim_agent::{Agent, AgentConfig};
use mqttshim_channel::emulated::Emulated;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Resource, Rlimit};

/// Sockets of one session, unless told otherwise.
const SOCKETS_MAX: u32 = 16 * 1024;
/// Sessions of one uid, unless told otherwise.
const SESSIONS_PER_UID_MAX: u32 = 256;
/// Pause between two tries to reach the card.
const RETRY: Duration = Duration::from_millis(200);

/// The host end of the Comm Channel, between preloaded programs and a dpu-server.
///
/// Needed where the card is not in the same process as the programs' sessions: dpu-server's own `--channel local` has its
/// agent inside.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
EXIT STATUS
  0  stopped by SIGTERM or SIGINT
  1  the session path or the channel could not be opened; the message says what to do
  2  the command line is not understood

EXAMPLE
  dpu-server run --channel emulated:/tmp/card.sock --trust suback &
  mqttshim-agent run --channel emulated:/tmp/card.sock &
  mqttshim run -- mosquitto -c mosquitto.conf"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve preloaded programs until SIGTERM.
    Run(Run),
}

#[derive(Args)]
struct Run {
    /// Where the card is: `emulated:PATH`, the path a dpu-server serves with the same option.
    #[arg(long, value_name = "emulated:PATH", value_parser = parse_channel)]
    channel: PathBuf,
    /// Where programs find the agent [default: /run/mqttshim/session.sock for root, else
    /// $XDG_RUNTIME_DIR/mqttshim/session.sock, else mqttshim-UID/session.sock in the temporary folder].
    #[arg(long, value_name = "PATH")]
    session: Option<PathBuf>,
    /// Let only members of this group open a session.
    #[arg(long, value_name = "NAME")]
    session_group: Option<String>,
    /// Sockets of one session.
    #[arg(long, value_name = "N", default_value_t = SOCKETS_MAX)]
    sockets_max: u32,
    /// Sessions of one user.
    #[arg(long, value_name = "N", default_value_t = SESSIONS_PER_UID_MAX)]
    sessions_per_uid_max: u32,
    /// What to log: error, warn, info, debug, trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "MQTTSHIM_AGENT_LOG")]
    log: String,
}

fn parse_channel(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some(("emulated", path)) if !path.is_empty() => Ok(path.into()),
        _ => Err("expected emulated:PATH, for example emulated:/tmp/card.sock".into()),
    }
}

fn main() -> ExitCode {
    let Command::Run(run) = Cli::parse().command;
    let logs = match logs::check(&run.log).and_then(|()| Logs::start(&run.log)) {
        Ok(logs) => logs,
        Err(error) => {
            // A standard error that takes nothing leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "mqttshim-agent: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = serve(run);
    if let Err(error) = &outcome {
        tracing::error!("{error:#}");
    }
    logs.flush();
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve(run: Run) -> anyhow::Result<()> {
    let (stop, stop_writer) = UnixStream::pair().context("a pipe for signals")?;
    stop.set_nonblocking(true).context("a pipe for signals")?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let writer = stop_writer.try_clone().context("a pipe for signals")?;
        signal_hook::low_level::pipe::register(signal, writer).context("a signal handler")?;
    }
    raise_descriptor_limit();
    let mut agent = Agent::open(AgentConfig {
        session_path: run.session,
        session_group: run.session_group,
        sockets_max: run.sockets_max,
        sessions_per_uid_max: run.sessions_per_uid_max,
    })?;
    tracing::info!(session = %agent.session_path().display(), "serving programs");
    let mut is_waiting = false;
    loop {
        match Emulated::connect(&run.channel) {
            Ok(channel) => {
                is_waiting = false;
                if relay(&mut agent, channel, &stop)? {
                    agent.shutdown();
                    return Ok(());
                }
            }
            Err(error) if error.is_retryable() => {
                if !std::mem::replace(&mut is_waiting, true) {
                    tracing::warn!("waiting for the card: {error}");
                }
            }
            Err(error) => return Err(error).context("the channel to the card"),
        }
        // Programs that knock meanwhile are told that there is no card.
        agent.handle_events();
        if wait(&[PollFd::new(&stop, PollFlags::IN)], Some(RETRY))? {
            return Ok(());
        }
    }
}

/// Every connection of every program costs one descriptor here.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, "cannot raise the limit of open files");
    }
}

/// Serves one connection to the card. Says whether to stop; `false`: the card is gone.
fn relay(agent: &mut Agent, mut channel: Emulated, stop: &UnixStream) -> anyhow::Result<bool> {
    loop {
        let has_moved = agent.turn(&mut channel, Instant::now());
        if agent.take_lost() {
            return Ok(false);
        }
        let sleeps = !has_moved && agent.prepare_sleep();
        let now = Instant::now();
        let deadline = agent.next_deadline().map(|at| at.saturating_duration_since(now));
        let timeout = if sleeps { deadline } else { Some(Duration::ZERO) };
        let mut interest = PollFlags::IN;
        if agent.is_congested() {
            interest |= PollFlags::OUT;
        }
        let fds = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(channel.as_fd(), interest),
            PollFd::from_borrowed_fd(agent.readiness(), PollFlags::IN),
        ];
        let must_stop = wait(&fds, timeout)?;
        if sleeps {
            agent.woke();
        }
        if must_stop {
            return Ok(true);
        }
        agent.handle_events();
    }
}

/// Waits for any of `fds`. Says whether the first of them is ready.
fn wait(fds: &[PollFd<'_>], timeout: Option<Duration>) -> anyhow::Result<bool> {
    let mut fds = fds.to_vec();
    let timeout =
        timeout.map(|timeout| Timespec::try_from(timeout).context("a time-out")).transpose()?;
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno).context("poll"),
    }
    Ok(fds.first().is_some_and(|first| !first.revents().is_empty()))
}
