//! What the tests of the library share: the library itself, and programs with it.
//!
//! The library is a cdylib: it is tested from outside, loaded into programs by the dynamic linker.

// Each test binary uses a part.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

pub(crate) mod card;
pub(crate) mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library of this build, beside the folder of the test binaries.
///
/// Cargo does not build a package's cdylib for its tests, so it is built here if it is missing or older than its sources.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let test = std::env::current_exe().unwrap();
            let profile = test.parent().unwrap().parent().unwrap();
            let library = profile.join("libmqttshim.so");
            if !is_current(&library) {
                build(profile);
            }
            library
        })
        .clone()
}

fn build(profile: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "mqttshim", "--lib", "--target-dir"]);
    cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the library is built");
}

/// Whether the library is newer than all it is made of.
fn is_current(library: &Path) -> bool {
    let made = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let Ok(built) = made(library) else { return false };
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> =
        ["src", "session/src", "../schema/src"].map(|folder| package.join(folder)).into();
    let mut files = vec![package.join("Cargo.toml"), package.join("../Cargo.toml")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.iter().all(|file| made(file).unwrap() <= built)
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
        .args(["-std=gnu11", "-O1", "-D_FORTIFY_SOURCE=2", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .arg(&source)
        .args(arguments)
        .output()
        .expect("cc is there: rustc links with it");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}
