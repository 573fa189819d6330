//! A few lines of HTTP/1.1 (RFC 9112), enough for a scraper.
//!
//! `GET /metrics` gets the text, any other target 404, anything else 400 or 405. One request a connection, at most
//! [`REQUEST_BYTES_MAX`], within [`REQUEST_TIME_MAX`]; one connection at a time on a thread of its own, so a slow scraper
//! delays scrapers only.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Board, Registry};

/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// A request that takes longer is dropped, and so is a response.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error(
        "cannot serve metrics on {address}: {error}; choose another address with --metrics HOST:PORT"
    )]
    Bind {
        /// What was asked for.
        address: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// No thread.
    #[error("cannot start the thread that serves metrics: {0}")]
    Thread(#[source] io::Error),
}

/// Serves a board on this address from a thread of its own, until the process ends. Returns the bound address.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(address: &str, board: Arc<Board>) -> Result<SocketAddr, ServeError> {
    let failed = |error| ServeError::Bind { address: address.to_owned(), error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || serve_all(&listener, board)).map_err(ServeError::Thread)?;
    Ok(bound)
}

fn serve_all(listener: &TcpListener, board: Arc<Board>) {
    let registry = Registry::new(board);
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                if let Err(error) = answer(client, &registry) {
                    tracing::debug!(%error, "a request for metrics failed");
                }
            }
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn answer(mut client: TcpStream, registry: &Registry) -> io::Result<()> {
    client.set_write_timeout(Some(REQUEST_TIME_MAX))?;
    let request = read_request(&mut client)?;
    let (status, body) = match respond(&request) {
        Ok(()) => match registry.text() {
            Ok(text) => ("200 OK", text),
            Err(error) => ("500 Internal Server Error", format!("{error}\n")),
        },
        Err(status) => (status, format!("{status}: see /metrics\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The request's head, or as much of it as came within the bounds.
fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + REQUEST_TIME_MAX;
    let mut request = vec![0; REQUEST_BYTES_MAX];
    let mut bytes = 0;
    while bytes < request.len() && !request[..bytes].windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut request[bytes..])? {
            0 => break,
            more => bytes += more,
        }
    }
    request.truncate(bytes);
    Ok(request)
}

/// Whether the request is for the metrics; else the status that says why not.
fn respond(request: &[u8]) -> Result<(), &'static str> {
    let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n");
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(b"HTTP/1.1" | b"HTTP/1.0"), None) if is_whole => {
            let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
            match (method, path) {
                (b"GET", b"/metrics") => Ok(()),
                (b"GET", _) => Err("404 Not Found"),
                _ => Err("405 Method Not Allowed"),
            }
        }
        _ => Err("400 Bad Request"),
    }
}
