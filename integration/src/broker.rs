//! mosquitto, plain or with the library preloaded.
//!
//! The same configuration either way, so that what differs is ours. Started as root it becomes the user `mosquitto`, as the
//! packaged one does; its files lie in the test's folder, which everybody may read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::card::clear_environment;
use crate::process::Process;
use crate::{Client, Folder, Login, needs, network, paths, ports, wait};

/// How a broker is to be started.
#[derive(Clone, Debug, Default)]
pub struct BrokerSetup<'a> {
    /// The session to preload it for; `None`: plain.
    pub session: Option<&'a Path>,
    /// Its port; `None`: any.
    pub port: Option<u16>,
    /// Listens at all addresses, not just the loopback's.
    pub is_everywhere: bool,
    /// More lines for its configuration.
    pub config: &'a str,
    /// The command that runs mosquitto; empty: the installed one.
    pub program: &'a [String],
    /// More variables.
    pub environment: &'a [(&'a str, &'a str)],
    /// Its name among the test's processes.
    pub name: Option<&'a str>,
}

/// See the module.
#[derive(Debug)]
pub struct Broker {
    /// The process.
    pub process: Process,
    port: u16,
    config: PathBuf,
}

impl Broker {
    /// A broker whose sockets are the card's, once it serves them.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn on_card(folder: &Folder, session: &Path) -> Broker {
        Broker::start(folder, &BrokerSetup { session: Some(session), ..BrokerSetup::default() })
    }

    /// A broker alone, once it serves.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn plain(folder: &Folder) -> Broker {
        Broker::start(folder, &BrokerSetup::default())
    }

    /// Any broker, once it serves.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder, setup: &BrokerSetup<'_>) -> Broker {
        let mut broker = Broker::launch(folder, setup);
        if setup.session.is_some() {
            broker.process.await_log("is served by the card");
        }
        broker.await_service();
        broker
    }

    /// Any broker, without waiting for anything.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn launch(folder: &Folder, setup: &BrokerSetup<'_>) -> Broker {
        let port = setup.port.unwrap_or_else(ports::free);
        let name = setup.name.unwrap_or(match setup.session {
            Some(_) => "broker",
            None => "plain-broker",
        });
        let mut text = config(port, setup.config);
        if setup.is_everywhere {
            text = text.replacen(&format!(" {}", network::host()), "", 1);
        }
        let config = folder.write(&format!("{name}.conf"), &text);
        let mut command = match setup.program {
            [] => command(setup.session, port),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                clear_environment(command.args(arguments));
                if let Some(session) = setup.session {
                    preload(&mut command, session, port);
                }
                command
            }
        };
        command.envs(setup.environment.iter().copied()).arg("-c").arg(&config);
        let process = Process::start(name, folder.path(), &mut command);
        Broker { process, port, config }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its configuration file.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Has it read its configuration again.
    pub fn reload(&mut self) {
        self.process.signal(Signal::HUP);
    }

    /// Waits until it accepts a client.
    ///
    /// # Panics
    /// If it never does.
    #[track_caller]
    pub fn await_service(&mut self) {
        let port = self.port;
        let what = format!("a broker answers at port {port}");
        wait::until(&what, || {
            assert!(self.process.is_running(), "the broker ended before it served");
            // A card that has no broker accepts nobody, but a backlog may: the answer counts.
            let mut client = Client::begin(port, &Login::new("probe")).ok()?;
            client.set_timeout(Duration::from_secs(2));
            client.login().is_ok().then(|| client.disconnect())
        });
    }
}

/// The configuration of a broker for everybody on this machine.
#[must_use]
pub fn config(port: u16, more: &str) -> String {
    let head =
        format!("listener {port} {}\nallow_anonymous true\npersistence false\n", network::host());
    format!("{head}log_dest stderr\nsys_interval 1\nmax_queued_messages 10000\n{more}\n")
}

/// mosquitto, preloaded for `session` if there is one.
///
/// # Panics
/// If it is not installed: tests ask for it with [`needs!`](crate::needs!) first.
#[must_use]
pub fn command(session: Option<&Path>, port: u16) -> Command {
    let program = needs::find("mosquitto").expect("the test asked for mosquitto");
    let mut command = Command::new(program);
    clear_environment(&mut command);
    if let Some(session) = session {
        preload(&mut command, session, port);
    }
    command
}

/// Has a program run on the card of `session` with its listeners on `port`.
pub fn preload(command: &mut Command, session: &Path, port: u16) {
    // The session's file is in the folder of its card.
    network::lead(port, session.parent().unwrap_or(session));
    command
        .env("LD_PRELOAD", paths::library())
        .env("MQTTSHIM_SESSION", session)
        .env("MQTTSHIM_LISTEN", port.to_string())
        .env("MQTTSHIM_LOG", "info")
        // No other card of this machine is to be found.
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env("TMPDIR", "/nonexistent");
}
