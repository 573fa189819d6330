//! The socket: who may ask, and one request after the other.
//!
//! It lies beside the session socket, belongs to the server's user with mode 0600, and the kernel tells with every connection
//! who asks: root and the server's own user are served, everybody else is told who may.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{Request, done, error, session_line};
use super::{Counter, Order, Place, Reply, Which};
use crate::mqtt::Forgotten;

/// Longest request that is read.
const REQUEST_BYTES_MAX: u64 = 128 * 1024;
/// How long a request may take to come, and each piece of the answer to be taken.
const STEP_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why nothing can be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The path cannot be had.
    #[error(
        "cannot serve `mqttshim sessions` at {}: {error}; choose another session path with --session PATH",
        path.display()
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// No thread.
    #[error("cannot start the thread that serves `mqttshim sessions`: {0}")]
    Thread(#[source] io::Error),
}

/// Where a server is asked that is found at this session or channel path.
#[must_use]
pub fn path_beside(session: &Path) -> PathBuf {
    session.with_extension("control")
}

/// Removes its name when the server ends.
#[derive(Debug)]
pub struct Served(PathBuf);

impl Drop for Served {
    fn drop(&mut self) {
        // A name that is left over is taken by the next server: it refuses.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves the socket from a thread of its own, until the process ends.
///
/// # Errors
/// See [`ControlError`].
pub fn serve(path: &Path, counter: Counter) -> Result<Served, ControlError> {
    let failed = |error| ControlError::Path { path: path.to_owned(), error };
    let listener = bind(path).map_err(failed)?;
    let served = Served(path.to_owned());
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
    let thread = std::thread::Builder::new().name("control".to_owned());
    thread.spawn(move || serve_all(&listener, counter)).map_err(ControlError::Thread)?;
    Ok(served)
}

/// Binds, taking over a name that nobody answers on.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => match UnixStream::connect(path) {
            Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(error),
        },
        bound => bound,
    }
}

fn serve_all(listener: &UnixListener, mut counter: Counter) {
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                if let Err(error) = serve_one(client, &mut counter) {
                    tracing::debug!(%error, "a request of an operator failed");
                }
            }
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn serve_one(client: UnixStream, counter: &mut Counter) -> io::Result<()> {
    client.set_read_timeout(Some(STEP_TIME_MAX))?;
    client.set_write_timeout(Some(STEP_TIME_MAX))?;
    let asks = rustix::net::sockopt::socket_peercred(&client)?.uid.as_raw();
    let mut line = String::new();
    BufReader::new((&client).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let last = match refusal(asks) {
        Some(why) => error(&why),
        None => answer(&line, &client, counter)?,
    };
    (&client).write_all(last.as_bytes())
}

/// Why this user is not served, if so.
pub(super) fn refusal(asks: u32) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    (asks != 0 && asks != own)
        .then(|| format!("uid {asks} may not ask: only root and uid {own}, which runs dpu-server"))
}

/// Carries out a request, writes all of the answer but its last line, and returns that.
fn answer(line: &str, mut out: impl Write, counter: &mut Counter) -> io::Result<String> {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(why) => return Ok(error(&format!("no request: {why}"))),
    };
    match request {
        Request::ListSessions(broker) => list(broker, &mut out, counter),
        Request::ForgetSession(broker, client_id) => Ok(forget(broker, &client_id, counter)),
        Request::ForgetSessions(broker) => Ok(forget_all(broker, counter)),
        Request::FlushRoutes(broker) => Ok(match counter.ask(Order::FlushRoutes(broker)) {
            Some(Reply::Count(count, _)) => done(count),
            _ => unanswered(),
        }),
    }
}

fn unanswered() -> String {
    error("the data plane does not answer; is it stopping?")
}

fn list(broker: Which, out: &mut impl Write, counter: &mut Counter) -> io::Result<String> {
    let (mut place, mut count) = (Place::default(), 0);
    loop {
        let Some(Reply::Sessions(sessions, next)) = counter.ask(Order::List(broker, place)) else {
            return Ok(unanswered());
        };
        count += sessions.len();
        let lines: String = sessions.iter().map(session_line).collect();
        out.write_all(lines.as_bytes())?;
        match next {
            Some(next) => place = next,
            None => return Ok(done(count)),
        }
    }
}

fn forget(broker: Which, client_id: &str, counter: &mut Counter) -> String {
    let Some(Reply::Forgotten(outcomes)) = counter.ask(Order::Forget(broker, client_id.into()))
    else {
        return unanswered();
    };
    let count = outcomes.iter().filter(|it| **it == Forgotten::Done).count();
    if count > 0 {
        tracing::info!(client_id, count, "an operator had a session forgotten");
        return done(count);
    }
    let why = if outcomes.contains(&Forgotten::Connected) {
        "is connected; a session is forgotten when its client comes with a clean start, or is offline"
    } else if outcomes.contains(&Forgotten::Unsettled) {
        "is coming or going at this moment; try again"
    } else {
        "is not known here; `mqttshim sessions` lists those that are"
    };
    error(&format!("the session of {client_id:?} {why}"))
}

fn forget_all(broker: Which, counter: &mut Counter) -> String {
    let (mut place, mut count) = (Place::default(), 0);
    loop {
        let Some(Reply::Count(more, next)) = counter.ask(Order::ForgetAll(broker, place)) else {
            return unanswered();
        };
        count += more;
        let Some(next) = next else { break };
        place = next;
    }
    tracing::info!(count, "an operator had every session forgotten that is offline");
    done(count)
}
