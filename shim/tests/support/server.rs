//! A program of `tests/programs` that listens, and what clients say to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A scenario's program, up and listening.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) port: u16,
    /// What was read of its output beyond the port, for [`assert_ok`](Self::assert_ok).
    pub(crate) rest: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command, scenario: &str) -> Server {
        Server::start_with(command, scenario, &[])
    }

    pub(crate) fn start_with(
        command: &mut Command,
        scenario: &str,
        arguments: &[String],
    ) -> Server {
        let command = command.arg(scenario).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            let _ = child.wait();
            panic!("{scenario} does not listen: {line:?} {errors}");
        });
        Server { child, output, port, rest: String::new() }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> std::io::Result<TcpStream> {
        let client = TcpStream::connect(("127.0.0.1", self.port))?;
        let patience = Some(Duration::from_secs(20));
        client.set_read_timeout(patience)?;
        client.set_write_timeout(patience)?;
        Ok(client)
    }

    /// Connects as soon as somebody listens, within ten seconds.
    #[track_caller]
    pub(crate) fn connect_patiently(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.try_connect() {
                Ok(client) => return client,
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => panic!("nobody listens on {}: {error}", self.port),
            }
        }
    }

    /// Waits for its end. Its status, and what it said on standard error.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        self.output.read_to_string(&mut self.rest).unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), errors)
    }

    #[track_caller]
    pub(crate) fn assert_ok(mut self, ground: &str) {
        let mut rest = std::mem::take(&mut self.rest);
        self.output.read_to_string(&mut rest).unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            status.success() && rest.ends_with("ok\n") && errors.is_empty(),
            "on {ground}: {status}\n{rest}{errors}"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(mut errors) = self.child.stderr.take()
        {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            eprintln!("the program said: {text}");
        }
    }
}

/// Sends `bytes`, half-closes, and reads until the end.
pub(crate) fn exchange(mut client: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut writer = client.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    })
}

#[track_caller]
pub(crate) fn assert_echo(client: TcpStream) {
    assert_eq!(exchange(client, b"hello, card"), b"hello, card");
}
