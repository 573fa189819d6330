//! What the tests of the library share: the library itself, and programs with it.
//!
//! The library is a cdylib: it is tested from outside, loaded into programs by the dynamic linker.

// Each test binary uses a part.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod card;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library of this build, which cargo puts beside the folder of the test binaries.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().parent().unwrap().join("libmqttshim.so");
    assert!(library.exists(), "{} is missing; build the package first", library.display());
    library
}

/// A program with the library preloaded, no variable of ours but those the test sets, and no session to be found.
pub(crate) fn preloaded(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MQTTSHIM_") {
            command.env_remove(name);
        }
    }
    command
        .env("LD_PRELOAD", library())
        .env("TMPDIR", "/nonexistent")
        .env("XDG_RUNTIME_DIR", "/nonexistent");
    command
}

/// Compiles a C program of `tests/programs` into `folder`.
pub(crate) fn compile(source: &str, folder: &Path, arguments: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let target = folder.join(source.file_stem().unwrap());
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .arg(&source)
        .args(arguments)
        .output()
        .expect("cc is there: rustc links with it");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}
