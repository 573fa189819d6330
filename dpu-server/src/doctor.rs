//! `dpu-server list` and `dpu-server doctor`: what this machine allows, and what to do where it does not.

use std::io::{self, Write};

use mqttshim_agent::{Agent, AgentConfig, OpenError};
use mqttshim_channel::emulated::BindError;

use crate::config::{Config, PortChoice, StackConfig};
use crate::descriptors;
use crate::stack::kernel::Uring;
use mqttshim_port::mem::{Mem, MemError};
use mqttshim_port::tap::Tap;
use mqttshim_port::xdp::Xdp;

/// Prints the stacks and channels of this build, and what of them this machine refuses.
///
/// # Errors
/// When `out` takes nothing.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "stacks")?;
    match Uring::new() {
        Ok(_) => writeln!(out, "  kernel          available; sends are batched by io_uring")?,
        Err(refused) => writeln!(out, "  kernel          available; plain sends ({refused})")?,
    }
    writeln!(out, "  smoltcp         available, on one of these ports")?;
    writeln!(out, "ports")?;
    match Xdp::check() {
        Ok(()) => writeln!(out, "  xdp:INTERFACE   available")?,
        Err(refused) => writeln!(out, "  xdp:INTERFACE   {refused}")?,
    }
    match Tap::check() {
        Ok(()) => writeln!(out, "  tap:INTERFACE   available")?,
        Err(refused) => writeln!(out, "  tap:INTERFACE   {refused}")?,
    }
    writeln!(out, "  mem:PATH        available; mqttshim bench connects to PATH")?;
    writeln!(out, "channels")?;
    writeln!(out, "  local           available; the agent lives inside dpu-server")?;
    writeln!(out, "  emulated:PATH   available; a mqttshim-agent of this machine connects to PATH")
}

/// One finding: whether it is well, what it is, and what to do.
struct Finding {
    is_well: bool,
    what: String,
}

/// Checks what `run` would need and prints it; true if all is well.
///
/// # Errors
/// When `out` takes nothing.
pub fn doctor(out: &mut impl Write, config: &Config) -> io::Result<bool> {
    let mut is_well = true;
    let findings = [sockets(config), uring(), session(config)];
    for finding in findings.into_iter().chain(port(config)) {
        let sign = if finding.is_well { "ok  " } else { "MEND" };
        writeln!(out, "{sign}  {}", finding.what)?;
        is_well &= finding.is_well;
    }
    Ok(is_well)
}

fn sockets(config: &Config) -> Finding {
    let available = descriptors::raise();
    match descriptors::sockets(config.sockets_max, available, &config.channel, &config.stack) {
        Ok(sockets) => {
            let what = format!("descriptors: {available}, enough for {sockets} sockets");
            Finding { is_well: true, what }
        }
        Err(few) => Finding { is_well: false, what: format!("descriptors: {few}") },
    }
}

fn uring() -> Finding {
    let what = match Uring::new() {
        Ok(_) => "io_uring: sends are batched".to_owned(),
        // It works without, at the price of a system call a send.
        Err(refused) => format!(
            "io_uring: refused ({refused}), so each send is a system call; see the sysctl kernel.io_uring_disabled and \
             seccomp filters (containers)"
        ),
    };
    Finding { is_well: true, what }
}

/// Whether this user may have the port of a stack of our own. A device or a path is made and removed again; an interface is left alone,
/// so whether another program has it is not told.
fn port(config: &Config) -> Option<Finding> {
    let StackConfig::Smoltcp { port, .. } = &config.stack else { return None };
    let outcome = match port {
        PortChoice::Xdp(name) => match Xdp::check_interface(name) {
            Ok(true) => Ok("is there, and AF_XDP is open to this user".to_owned()),
            Ok(false) => Err(format!("{name} is down: ip link set {name} up")),
            Err(error) => Err(error.to_string()),
        },
        PortChoice::Tap(name) => {
            Tap::open(name).map(|_| "can be had".to_owned()).map_err(|error| error.to_string())
        }
        PortChoice::Mem(path) => match Mem::listen(path) {
            Ok(_) => Ok("can be served".to_owned()),
            Err(MemError::Bind(BindError::InUse { .. })) => Ok("is served already".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    };
    Some(match outcome {
        Ok(how) => Finding { is_well: true, what: format!("port: {port} {how}") },
        Err(error) => Finding { is_well: false, what: format!("port: {port}: {error}") },
    })
}

/// Makes the session path and removes it again: the only proof that it can be made.
fn session(config: &Config) -> Finding {
    let opened = Agent::open(AgentConfig {
        session_path: config.session.clone(),
        session_group: config.session_group.clone(),
        sockets_max: 1,
        sessions_per_uid_max: config.sessions_per_uid_max,
    });
    match opened {
        Ok(agent) => {
            let what = format!("session path: {} can be served", agent.session_path().display());
            Finding { is_well: true, what }
        }
        Err(OpenError::InUse(path)) => {
            let what = format!("session path: {} is served already", path.display());
            Finding { is_well: true, what }
        }
        Err(error) => Finding { is_well: false, what: format!("session path: {error}") },
    }
}
