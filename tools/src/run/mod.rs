//! `mqttshim run`: starts a program with the library preloaded, or says why that cannot work.
//!
//! ```text
//! PROGRAM ──► its file ──► its interpreter, if a script ──► obstacle? ──no──► execve with LD_PRELOAD
//!                                                              └─yes─► status 3, or plainly with --fallback kernel
//! ```
//!
//! A preload that does not take effect is silent, which is why it is explained before. Programs that PROGRAM itself
//! starts are not looked at.

mod elf;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};

use crate::library;

/// Exit status when the library cannot be preloaded.
const CANNOT_PRELOAD: u8 = 3;

/// Shown below the options.
pub(crate) const HELP: &str = "\
Examples:
  mqttshim run -- mosquitto -c /etc/mosquitto/mosquitto.conf
  mqttshim run --listen 1883,8883 --fallback fail -- mosquitto -c my.conf

The same without this command: LD_PRELOAD=/path/to/libmqttshim.so mosquitto …. What this adds: it finds the library, and \
it looks at the program first and explains why it would not be preloaded (statically linked, setuid, file capabilities, \
another architecture, musl, Go), instead of silently running it on kernel sockets. An LD_PRELOAD that is already set \
stays, ours behind it.

Exit status: the program's own; 3 it cannot be preloaded (and --fallback kernel was not given); 126 it is not executable; \
127 there is no such program; 2 wrong usage.";

/// Arguments of `mqttshim run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// File of rules: which sockets are offloaded [sets MQTTSHIM_RULES]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Ports whose listeners are offloaded, PORT[-PORT],… [sets MQTTSHIM_LISTEN; without it 1883]
    #[arg(long, value_name = "PORTS")]
    listen: Option<String>,
    /// Where dpu-server or the agent serves the session [sets MQTTSHIM_SESSION]
    #[arg(long, value_name = "PATH")]
    session: Option<PathBuf>,
    /// Without a card, or a program that cannot be preloaded: go on with kernel sockets, or fail [sets MQTTSHIM_FALLBACK]
    #[arg(long, value_enum)]
    fallback: Option<Fallback>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// What to do without a card.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Fallback {
    /// Kernel sockets
    Kernel,
    /// An error
    Fail,
}

/// Replaces this process by the program. Returns only if that failed.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let name = &args.program[0];
    let file = match program::find(name) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("mqttshim: {error}");
            return ExitCode::from(error.exit_status());
        }
    };
    let library = match preloadable(&file) {
        Ok(library) => Some(library),
        Err(why) if args.fallback == Some(Fallback::Kernel) => {
            eprintln!("mqttshim: warning: {why}; it runs on kernel sockets");
            None
        }
        Err(why) => {
            eprintln!("mqttshim: {why}");
            eprintln!("mqttshim: to run it on kernel sockets all the same, add --fallback kernel");
            return ExitCode::from(CANNOT_PRELOAD);
        }
    };
    let mut command = Command::new(&file);
    command.arg0(name).args(&args.program[1..]);
    if let Some(library) = library {
        let preload = env::var_os("LD_PRELOAD");
        command.env("LD_PRELOAD", appended(preload.as_deref(), library.as_os_str()));
        command.envs(variables(args));
    }
    let error = command.exec();
    eprintln!("mqttshim: {}: {error}", file.display());
    let found = error.kind() != std::io::ErrorKind::NotFound;
    ExitCode::from(if found { 126 } else { 127 })
}

/// The library, if the program would load it.
fn preloadable(file: &std::path::Path) -> Result<PathBuf, String> {
    let library = library::find().map_err(|error| error.to_string())?;
    let (loaded, through) = match program::interpreter(file) {
        Some(interpreter) => {
            let note = format!(" (interpreter of the script {})", file.display());
            (interpreter, note)
        }
        None => (file.to_path_buf(), String::new()),
    };
    match elf::obstacle(&loaded, &library) {
        Ok(None) => Ok(library),
        Ok(Some(obstacle)) => {
            Err(format!("{}{through} cannot be preloaded: {obstacle}", loaded.display()))
        }
        Err(error) => Err(format!("{error:#}")),
    }
}

/// ld.so(8): a list separated by colons or spaces, loaded in order.
fn appended(existing: Option<&OsStr>, library: &OsStr) -> OsString {
    let mut list =
        existing.filter(|list| !list.is_empty()).map(OsStr::to_owned).unwrap_or_default();
    let ours = library.to_string_lossy();
    if list.to_string_lossy().split([':', ' ']).any(|one| one == ours) {
        return list;
    }
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
    list
}

fn variables(args: &RunArgs) -> Vec<(&'static str, OsString)> {
    let fallback = args.fallback.map(|fallback| match fallback {
        Fallback::Kernel => OsString::from("kernel"),
        Fallback::Fail => OsString::from("fail"),
    });
    let all = [
        ("MQTTSHIM_RULES", args.rules.clone().map(PathBuf::into_os_string)),
        ("MQTTSHIM_LISTEN", args.listen.clone().map(OsString::from)),
        ("MQTTSHIM_SESSION", args.session.clone().map(PathBuf::into_os_string)),
        ("MQTTSHIM_FALLBACK", fallback),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_preload_stays_in_front_and_ours_is_added_once() {
        let ours = OsStr::new("/lib/libmqttshim.so");
        assert_eq!(appended(None, ours), "/lib/libmqttshim.so");
        assert_eq!(appended(Some(OsStr::new("")), ours), "/lib/libmqttshim.so");
        let both = appended(Some(OsStr::new("/lib/a.so")), ours);
        assert_eq!(both, "/lib/a.so:/lib/libmqttshim.so");
        assert_eq!(appended(Some(&both), ours), both);
    }
}
