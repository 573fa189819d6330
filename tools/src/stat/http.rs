//! One GET over HTTP/1.1, by hand.
//!
//! RFC 9112. Asks to close the connection after the answer, so the body ends with the stream; understands a body sent in
//! chunks all the same. No redirects, no TLS. Bounds: [`ANSWER_BYTES_MAX`], [`TIMEOUT`] for each step.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Largest answer taken.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// How long to wait for a connection, and for each piece of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches `path` from `address` (HOST:PORT).
pub(crate) fn get(address: &str, path: &str) -> Result<String> {
    let unreachable =
        || format!("nobody answers at {address}: does dpu-server run with --metrics {address}?");
    let mut last = None;
    for candidate in address.to_socket_addrs().with_context(|| format!("{address:?}"))? {
        match TcpStream::connect_timeout(&candidate, TIMEOUT) {
            Ok(stream) => return exchange(stream, address, path),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error).with_context(unreachable),
        None => bail!(unreachable()),
    }
}

fn exchange(mut stream: TcpStream, address: &str, path: &str) -> Result<String> {
    stream.set_read_timeout(Some(TIMEOUT)).context("timeout")?;
    stream.set_write_timeout(Some(TIMEOUT)).context("timeout")?;
    // In one piece: a server may answer and close after the first.
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).context("request")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("answer")?;
    body(&answer)
}

fn body(answer: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        bail!("the answer is no HTTP: {:?}", text.chars().take(40).collect::<String>());
    };
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.") || status.split(' ').nth(1) != Some("200") {
        bail!("the answer is {status:?}, not a page of metrics");
    }
    let chunked = lines.any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    if chunked { unchunk(body).context("the chunks do not fit") } else { Ok(body.to_owned()) }
}

/// RFC 9112 §7.1.
fn unchunk(mut rest: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_page_is_fetched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let taken = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nm 1\n").unwrap();
            String::from_utf8_lossy(&request[..taken]).into_owned()
        });
        assert_eq!(get(&address, "/metrics").unwrap(), "m 1\n");
        assert!(server.join().unwrap().starts_with("GET /metrics HTTP/1.1\r\nHost: "));
    }

    #[test]
    fn nobody_there_says_what_to_start() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = format!("{:#}", get(&address, "/metrics").unwrap_err());
        assert!(error.contains("--metrics"), "{error}");
    }

    #[test]
    fn chunks_are_joined_and_other_answers_refused() {
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n";
        assert_eq!(body(chunked.as_bytes()).unwrap(), "abc");
        assert!(body(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(body(b"SSH-2.0-x\r\n").is_err());
        assert!(unchunk("5\r\nab").is_none());
    }
}
