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
    let name = source.file_stem().expect("a source file has a name").to_string_lossy();
    compile_all(&name, std::slice::from_ref(&source), folder, arguments)
}

/// Compiles several files into `folder/name`.
///
/// # Panics
/// With the compiler's words, if it refuses.
#[must_use]
#[track_caller]
pub fn compile_all(name: &str, sources: &[PathBuf], folder: &Path, arguments: &[&str]) -> PathBuf {
    let target = folder.join(name);
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .args(sources)
        .args(arguments)
        .output()
        .expect("the test asked for cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}
