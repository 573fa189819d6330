//! What a test needs of the machine, and what happens without it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::paths;

/// Ends the test, loudly, unless every program named is there.
#[macro_export]
macro_rules! needs {
    ($($program:expr),+ $(,)?) => {
        $(
            if !$crate::needs::has($program) {
                return;
            }
        )+
    };
}

/// Where a program is: on the search path, or in the system folders an ordinary user's path leaves out.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Whether a program is there; says so if not.
#[must_use]
pub fn has(program: &str) -> bool {
    find(program).is_some() || skip(&format!("{program} is not installed; run `make deps`"))
}

/// Whether a file that `make deps` makes is there; says so if not.
#[must_use]
pub fn has_file(path: &Path) -> bool {
    path.exists() || skip(&format!("{} is missing; run `make deps`", path.display()))
}

/// Whether the test runs as root; says so if not.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root() || skip("this test must run as root")
}

/// Says that the test is skipped. Always `false`.
///
/// # Panics
/// Under `CI=true` or `MQTTSHIM_TEST_STRICT=1`, where nothing may be skipped.
#[must_use]
pub fn skip(reason: &str) -> bool {
    let is_set = |name, value| std::env::var_os(name).is_some_and(|it| it == value);
    let is_strict = is_set("CI", "true") || is_set("MQTTSHIM_TEST_STRICT", "1");
    assert!(!is_strict, "cannot be skipped here: {reason}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("SKIPPED: {test}: {reason}");
    // Output of tests that pass is not shown: `make test` shows this file at its end.
    let log = paths::target().join("skipped-tests.log");
    if let Ok(mut log) = File::options().create(true).append(true).open(log) {
        // One write, so that tests side by side do not mix their lines.
        let _ = log.write_all(format!("SKIPPED: {test}: {reason}\n").as_bytes());
    }
    false
}
