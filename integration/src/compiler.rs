//! Small C programs: ordinary, dynamically linked ones, which is what the library is for.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;

/// Compiles `source`, a file of this crate, into `folder`.
///
/// # Panics
/// With the compiler's words, if it refuses.
#[must_use]
#[track_caller]
pub fn compile(source: &str, folder: &Path, arguments: &[&str]) -> PathBuf {
    let source = paths::own(source);
    let target = folder.join(source.file_stem().expect("a source file has a name"));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .arg(&source)
        .args(arguments)
        .output()
        .expect("the test asked for cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}
