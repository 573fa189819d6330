//! A server on a card that sends back what it gets, at all addresses of both versions of IP.

use std::process::Command;

use crate::{Card, Folder, Process, broker, ports};

const SCRIPT: &str = "\
import socket, socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
socketserver.ThreadingTCPServer.request_queue_size = 1000
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer.address_family = socket.AF_INET6
socketserver.ThreadingTCPServer(('::', int(sys.argv[1])), Echo).serve_forever()
";

/// See the module.
#[derive(Debug)]
pub struct Echo {
    _process: Process,
    port: u16,
}

impl Echo {
    /// Starts it, and waits until it serves. It is python3's.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder, card: &Card) -> Echo {
        let port = ports::free();
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT, &port.to_string()]);
        broker::preload(&mut command, card.session(), port);
        let mut process = Process::start("echo", folder.path(), &mut command);
        process.await_log("is served by the card");
        Echo { _process: process, port }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}
