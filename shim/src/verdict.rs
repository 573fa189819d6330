//! The verdict on a socket: rules file, then `MQTTSHIM_LISTEN`, then the kernel.
//!
//! Rules are read when the first verdict is asked for, and kept: a broker that changes root or user later still has them. A
//! rules file that cannot be read or parsed leaves everything with the kernel, or refuses, as `MQTTSHIM_FALLBACK` says.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::environment::{self, Fallback};
use crate::log::say;
use crate::rules::{Event, Rules, Verdict};
use crate::state;
use crate::trace;

/// Largest rules file, in bytes.
const RULES_FILE_BYTES_MAX: usize = 1024 * 1024;

/// What verdicts depend on. Made once, never freed.
struct Settings {
    /// `None`: unusable, and the operator has been told.
    rules: Option<Rules>,
    program: String,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());

/// The rules cannot be used and the kernel is ruled out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refused;

/// Where a socket goes that is to do `event` at `address`.
pub(crate) fn of(event: Event, address: SocketAddr) -> Result<Verdict, Refused> {
    let settings = settings();
    let verdict = match (&settings.rules, environment::fallback()) {
        (Some(rules), _) => rules.verdict(event, address, &settings.program),
        (None, Fallback::Kernel) => Verdict::Kernel,
        (None, Fallback::Fail) => return Err(Refused),
    };
    say!(Debug, "{event:?} {address}: {verdict:?}");
    if verdict == Verdict::Kernel {
        trace::because(trace::Reason::Rules);
    }
    Ok(verdict)
}

/// The path of the executable.
pub(crate) fn program() -> &'static str {
    &settings().program
}

fn settings() -> &'static Settings {
    let known = SETTINGS.load(Ordering::Acquire);
    let pointer = if known.is_null() { make() } else { known };
    // SAFETY: a pointer that is not null came from `Box::into_raw` in `make` and is never freed or changed.
    unsafe { &*pointer }
}

fn make() -> *mut Settings {
    // The lock keeps a second thread from reading the file, and from warning, again.
    let _held = state::lock();
    let known = SETTINGS.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let program = rustix::fs::readlink("/proc/self/exe", Vec::new())
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default();
    let made = Box::into_raw(Box::new(Settings { rules: read_rules(), program }));
    SETTINGS.store(made, Ordering::Release);
    made
}

fn read_rules() -> Option<Rules> {
    let from_file = match environment::rules_file() {
        None => Ok(Rules::default()),
        Some(path) => read_file(path)
            .map_err(|errno| format!("MQTTSHIM_RULES={}: {errno}", path.display()))
            .and_then(|text| {
                Rules::parse(&text, &path.to_string_lossy()).map_err(|error| error.to_string())
            }),
    };
    let from_ports = Rules::from_ports(&environment::listen_ports(), "MQTTSHIM_LISTEN")
        .map_err(|error| error.to_string());
    match from_file.and_then(|first| from_ports.map(|second| first.then(second))) {
        Ok(rules) => Some(rules),
        Err(error) => {
            let outcome = match environment::fallback() {
                Fallback::Kernel => "every socket stays with the kernel",
                Fallback::Fail => "listening and connecting fail, as MQTTSHIM_FALLBACK=fail asks",
            };
            say!(Warn, "{error}; {outcome}");
            None
        }
    }
}

/// std's file functions would come back into our own hooks.
fn read_file(path: &Path) -> Result<String, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 512];
    loop {
        let taken = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut chunk))?;
        bytes.extend_from_slice(&chunk[..taken]);
        if taken == 0 {
            return String::from_utf8(bytes).map_err(|_| Errno::ILSEQ);
        }
        if bytes.len() > RULES_FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
    }
}
