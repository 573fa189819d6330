//! Asks a running dpu-server for something: one line of words to the socket beside its session path, and lines back.
//!
//! dpu-server's `control` has the protocol. Bounds: [`TIMEOUT`] for each step.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::doctor::session_paths;

/// How long to wait for each piece of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which dpu-server, and which of its brokers.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// What dpu-server was given as --session, or the PATH of its --channel emulated:PATH [default: where a broker would find it]
    #[arg(long, value_name = "PATH", global = true)]
    session: Option<PathBuf>,
    /// Only this broker of several, by its number in the list
    #[arg(long, value_name = "NUMBER", global = true)]
    broker: Option<u32>,
}

impl ServerArgs {
    /// Has a request carried out; the lines of the answer, and the count in the last.
    pub(crate) fn ask(&self, verb: &str, more: &[(&str, &str)]) -> Result<(Vec<Words>, u64)> {
        let broker = self.broker.map(|number| number.to_string());
        let broker = broker.as_deref().map(|number| ("broker", number));
        let words =
            broker.iter().chain(more).map(|(key, value)| format!(" {key}={}", encode(value)));
        exchange(self.connect()?, &format!("{verb}{}\n", words.collect::<String>()))
    }

    fn connect(&self) -> Result<UnixStream> {
        let paths = match &self.session {
            Some(path) => vec![path.clone()],
            None => session_paths(),
        };
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.with_extension("control")).collect();
        for path in &paths {
            match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                connected => return connected.with_context(|| unreachable(path)),
            }
        }
        let looked: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "no dpu-server is found at {}: start `dpu-server run`, or name its session path with --session PATH",
            looked.join(", ")
        )
    }
}

fn unreachable(path: &Path) -> String {
    let shown = path.display();
    match std::fs::metadata(path).map(|it| it.uid()) {
        Ok(0) => format!("{shown} takes requests of root only: use sudo"),
        Ok(uid) => {
            format!("{shown} takes requests of root and uid {uid} only, while dpu-server serves it")
        }
        Err(_) => format!("{shown} cannot be reached"),
    }
}

/// The values of a line, by their keys.
pub(crate) type Words = BTreeMap<String, String>;

fn exchange(mut stream: UnixStream, request: &str) -> Result<(Vec<Words>, u64)> {
    stream.set_read_timeout(Some(TIMEOUT)).context("timeout")?;
    stream.set_write_timeout(Some(TIMEOUT)).context("timeout")?;
    stream.write_all(request.as_bytes()).context("request")?;
    let mut items = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.context("answer")?;
        let (kind, words) = parse(&line).with_context(|| format!("the answer {line:?}"))?;
        match kind {
            "error" => bail!("{}", words.get("text").map_or("dpu-server refuses", String::as_str)),
            "done" => {
                let count = words.get("count").and_then(|count| count.parse().ok());
                return Ok((items, count.unwrap_or(0)));
            }
            _ => items.push(words),
        }
    }
    bail!("dpu-server ended before its answer did")
}

/// What a line is, and its values.
fn parse(line: &str) -> Option<(&str, Words)> {
    let (kind, words) = line.split_once(' ').unwrap_or((line, ""));
    let pair = |word: &str| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_owned(), decode(value)?))
    };
    Some((kind, words.split_ascii_whitespace().map(pair).collect::<Option<_>>()?))
}

fn encode(text: &str) -> String {
    let byte = |&byte: &u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'.' | b'-' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.as_bytes().iter().map(byte).collect()
}

fn decode(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn server(folder: &Path, answer: &'static str) -> ServerArgs {
        let listener = UnixListener::bind(folder.join("s.control")).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "forget-session broker=3 client_id=a%20b\n");
            stream.write_all(answer.as_bytes()).unwrap();
        });
        ServerArgs { session: Some(folder.join("s.sock")), broker: Some(3) }
    }

    fn ask(answer: &'static str) -> Result<(Vec<Words>, u64)> {
        let folder = tempfile::tempdir().unwrap();
        server(folder.path(), answer).ask("forget-session", &[("client_id", "a b")])
    }

    #[test]
    fn an_answer_ends_with_a_count_or_an_error_or_is_not_whole() {
        let (items, count) = ask("session a=%C3%9C%20x b=1\ndone count=1\n").unwrap();
        assert_eq!((items[0]["a"].as_str(), items[0]["b"].as_str(), count), ("\u{DC} x", "1", 1));
        assert_eq!(ask("error text=not%20so\n").unwrap_err().to_string(), "not so");
        assert!(ask("session a=1\n").unwrap_err().to_string().contains("ended before"));
        assert!(ask("session a=%4\n").is_err());
    }

    #[test]
    fn where_nobody_serves_it_is_said_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let args = ServerArgs { session: Some(folder.path().join("s.sock")), broker: None };
        let error = format!("{:#}", args.ask("list-sessions", &[]).unwrap_err());
        assert!(error.contains("s.control") && error.contains("--session"), "{error}");
        drop(UnixListener::bind(folder.path().join("s.control")).unwrap());
        let error = format!("{:#}", args.ask("list-sessions", &[]).unwrap_err());
        assert!(error.contains("refused"), "{error}");
    }
}
