//! Writes `src/mqttshim_capnp.rs` from `mqttshim.capnp`; with `--check` only says whether it is current.
//!
//! ```text
//! mqttshim.capnp ──capnp compile──► scratch folder ──► compare, or replace the committed file
//! ```
//!
//! The generated code is committed, so that a build needs no Cap'n Proto compiler. This program does need `capnp`
//! (Debian package `capnproto`). Which version of `capnp` ran is left out of the file, so that any recent one will do; what
//! remains depends on the version of `capnpc` in Cargo.lock.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const USAGE: &str = "usage: cargo run -p mqttshim-schema --example generate [-- --check]";
/// The comment by which the generated code names the compiler of the machine it was made on.
const COMPILER_VERSION: &str = "// capnp binary version";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => generate().and_then(write),
        ["--check"] => generate().and_then(check),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("generate: {why}");
            ExitCode::FAILURE
        }
    }
}

fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the committed file has to be.
fn generate() -> Result<String, String> {
    let scratch = tempfile::tempdir().map_err(|why| format!("no scratch folder: {why}"))?;
    capnpc::CompilerCommand::new()
        .src_prefix(crate_root())
        .file(crate_root().join("mqttshim.capnp"))
        .output_path(scratch.path())
        .run()
        .map_err(|why| format!("{why}\n  is `capnp` installed? (apt-get install capnproto)"))?;
    let written = scratch.path().join("mqttshim_capnp.rs");
    let text =
        fs::read_to_string(&written).map_err(|why| format!("{}: {why}", written.display()))?;
    Ok(text.split_inclusive('\n').filter(|line| !line.starts_with(COMPILER_VERSION)).collect())
}

fn write(generated: String) -> Result<(), String> {
    let path = crate_root().join("src/mqttshim_capnp.rs");
    fs::write(&path, generated).map_err(|why| format!("{}: {why}", path.display()))
}

fn check(generated: String) -> Result<(), String> {
    let path = crate_root().join("src/mqttshim_capnp.rs");
    let committed =
        fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    if committed == generated {
        return Ok(());
    }
    let line = committed.lines().zip(generated.lines()).take_while(|(a, b)| a == b).count() + 1;
    Err(format!(
        "schema/src/mqttshim_capnp.rs is not what schema/mqttshim.capnp says (first difference in line {line}); \
         run `make schema` and commit the file"
    ))
}
