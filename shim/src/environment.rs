//! The variables that steer us, as they were when the program started.
//!
//! Read once by the constructor: programs overwrite their environment. Only what is set costs an allocation, and nothing is
//! judged here before the program asks for a socket that might be ours, so that `ls` stays silent.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::log::{self, Level, say};

/// Variables of ours, the tools' and the agent's included.
const KNOWN: [&str; 9] = [
    "MQTTSHIM_LISTEN",
    "MQTTSHIM_RULES",
    "MQTTSHIM_SESSION",
    "MQTTSHIM_FALLBACK",
    "MQTTSHIM_LOG",
    "MQTTSHIM_TRACE",
    "MQTTSHIM_EPOLL",
    "MQTTSHIM_LIBRARY",
    "MQTTSHIM_AGENT_LOG",
];
/// Ports whose listeners are offloaded where nothing else is said: MQTT's own, by IANA.
const LISTEN_DEFAULT: &str = "1883";

static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

/// What happens to a socket that should be offloaded when there is no card.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fallback {
    /// It stays with the kernel.
    Kernel,
    /// `listen` and `connect` fail.
    Fail,
}

#[derive(Default)]
struct Environment {
    listen: Option<OsString>,
    rules: Option<OsString>,
    session: Option<OsString>,
    fallback: Option<OsString>,
    log: Option<OsString>,
    trace: Option<OsString>,
    epoll: Option<OsString>,
    runtime_dir: Option<OsString>,
    temporary_dir: Option<OsString>,
}

/// Reads the variables. Called once, by the constructor.
pub(crate) fn read() {
    let environment = ENVIRONMENT.get_or_init(|| Environment {
        listen: std::env::var_os("MQTTSHIM_LISTEN"),
        rules: std::env::var_os("MQTTSHIM_RULES"),
        session: std::env::var_os("MQTTSHIM_SESSION"),
        fallback: std::env::var_os("MQTTSHIM_FALLBACK"),
        log: std::env::var_os("MQTTSHIM_LOG"),
        trace: std::env::var_os("MQTTSHIM_TRACE"),
        epoll: std::env::var_os("MQTTSHIM_EPOLL"),
        runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
        temporary_dir: std::env::var_os("TMPDIR"),
    });
    let name = environment.log.as_ref().and_then(|name| name.to_str());
    if let Some(level) = name.and_then(Level::from_name) {
        log::set_level(level);
    }
}

fn get() -> &'static Environment {
    // A library that calls us before our constructor ran finds the defaults.
    const DEFAULT: &Environment = &Environment {
        listen: None,
        rules: None,
        session: None,
        fallback: None,
        log: None,
        trace: None,
        epoll: None,
        runtime_dir: None,
        temporary_dir: None,
    };
    ENVIRONMENT.get().unwrap_or(DEFAULT)
}

/// `MQTTSHIM_FALLBACK`.
pub(crate) fn fallback() -> Fallback {
    match get().fallback.as_ref().and_then(|value| value.to_str()) {
        Some("fail") => Fallback::Fail,
        _ => Fallback::Kernel,
    }
}

/// `MQTTSHIM_EPOLL`: whether an epoll set may be kept at user level.
pub(crate) fn is_epoll_at_user_level() -> bool {
    get().epoll.as_ref().is_none_or(|value| value != "wire")
}

/// `MQTTSHIM_LISTEN`, or its default.
pub(crate) fn listen_ports() -> String {
    match &get().listen {
        Some(ports) => ports.to_string_lossy().into_owned(),
        None => LISTEN_DEFAULT.to_owned(),
    }
}

/// `MQTTSHIM_RULES`.
pub(crate) fn rules_file() -> Option<&'static Path> {
    get().rules.as_ref().filter(|path| !path.is_empty()).map(Path::new)
}

/// `MQTTSHIM_TRACE`.
pub(crate) fn trace() -> Option<&'static OsStr> {
    get().trace.as_deref()
}

/// Where a session may be, in the order they are tried.
pub(crate) fn session_paths() -> Vec<PathBuf> {
    let environment = get();
    let set = |value: &Option<OsString>| value.clone().filter(|text| !text.is_empty());
    let mut paths = Vec::with_capacity(4);
    paths.extend(set(&environment.session).map(PathBuf::from));
    paths.extend(
        set(&environment.runtime_dir)
            .map(|folder| Path::new(&folder).join("mqttshim/session.sock")),
    );
    paths.push(PathBuf::from("/run/mqttshim/session.sock"));
    let temporary = set(&environment.temporary_dir).unwrap_or_else(|| OsString::from("/tmp"));
    let uid = rustix::process::geteuid().as_raw();
    paths.push(Path::new(&temporary).join(format!("mqttshim-{uid}/session.sock")));
    paths
}

/// Warns of values and variables that mean nothing. Called when the first socket is about to be offloaded.
pub(crate) fn warn_of_mistakes() {
    let environment = get();
    for (name, value, allowed) in [
        ("MQTTSHIM_FALLBACK", &environment.fallback, &["kernel", "fail"][..]),
        ("MQTTSHIM_LOG", &environment.log, &["error", "warn", "info", "debug"][..]),
        ("MQTTSHIM_EPOLL", &environment.epoll, &["user", "wire"][..]),
    ] {
        let Some(value) = value.as_ref().map(|value| value.to_string_lossy()) else { continue };
        if !allowed.contains(&value.as_ref()) {
            say!(Warn, "{name}={value} is not known; expected one of {}", allowed.join(", "));
        }
    }
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("MQTTSHIM_") && !KNOWN.contains(&name) {
            say!(Warn, "{name} is not a variable of this library; did you mean {}?", nearest(name));
        }
    }
}

/// The known variable that takes the fewest edits to reach.
fn nearest(name: &str) -> &'static str {
    KNOWN.iter().min_by_key(|known| distance(name, known)).expect("KNOWN is not empty")
}

/// Levenshtein's distance.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(a != b)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_is_the_one_meant() {
        assert_eq!(nearest("MQTTSHIM_LISTN"), "MQTTSHIM_LISTEN");
        assert_eq!(nearest("MQTTSHIM_SESION"), "MQTTSHIM_SESSION");
        assert_eq!(nearest("MQTTSHIM_RULE"), "MQTTSHIM_RULES");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn a_session_is_looked_for_in_the_system_folder_before_the_temporary_one() {
        let paths = session_paths();
        let system = paths.iter().position(|path| path.starts_with("/run/mqttshim")).unwrap();
        assert_eq!(system + 2, paths.len());
        assert!(paths[system + 1].ends_with("session.sock"));
    }
}
