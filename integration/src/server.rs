//! Any other program that listens: a broker, redis, nginx; alone or with its sockets on the card.
//!
//! `brokers/NAME.sh PORT FOLDER [PREFIX…]` starts one of them.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::card::clear_environment;
use crate::process::Process;
use crate::{Folder, network, paths, ports, wait};

/// For a runtime that starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Server {
    _process: Process,
    port: u16,
}

impl Server {
    /// Starts `name`, on the card of `session` if there is one, with its files in `folder/role`. Waits until it answers.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder, name: &str, role: &str, session: Option<&Path>) -> Server {
        let port = ports::free();
        let own = folder.join(role);
        std::fs::create_dir(&own).expect("our own folder takes folders");
        let mut command = Command::new("bash");
        clear_environment(&mut command);
        command.arg(paths::own(&format!("brokers/{name}.sh"))).arg(port.to_string()).arg(own);
        if let Some(session) = session {
            command.arg(paths::built("mqttshim")).args(["run", "--fallback", "fail", "--listen"]);
            command.arg(port.to_string()).arg("--session").arg(session).arg("--");
            command.env("MQTTSHIM_LOG", "info");
        }
        let mut process = Process::start(&format!("{name}-{role}"), folder.path(), &mut command);
        if session.is_some() {
            process.await_log_within(PATIENCE, "is served by the card");
        }
        let connect = || TcpStream::connect((network::host(), port)).ok();
        wait::until_within(PATIENCE, &format!("{name} answers"), connect);
        Server { _process: process, port }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}
