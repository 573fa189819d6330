//! Where the programs under test are.

use std::path::{Path, PathBuf};

/// Cargo's target folder.
///
/// # Panics
/// If this is no test of cargo's.
#[must_use]
pub fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    // target/PROFILE/deps/TEST
    own.ancestors().nth(3).expect("cargo's layout has three folders above a test").to_owned()
}

/// An optimised program or library of this workspace.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let path = target().join("release").join(name);
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    path
}

/// The preloaded library.
#[must_use]
pub fn library() -> PathBuf {
    built("libmqttshim.so")
}

/// The root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("the crate is a folder of the workspace")
}

/// A file of this crate, such as a client's script.
#[must_use]
pub fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
