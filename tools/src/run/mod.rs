//! `mqttshim run`: starts a program with the library preloaded, or says why that cannot work.
//!
//! ```text
//! PROGRAM ──► its file ──► its interpreter, if a script ──► obstacle? ──no──► execve with LD_PRELOAD
//!                                                              └─yes─► status 3, or plainly with --fallback kernel
//! ```
//!
//! A preload that does not take effect is silent, which is why it is explained before. Programs that PROGRAM itself
//! starts are not looked at.

pub(crate) mod elf;
mod program;
mod wrapper;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
another architecture, musl, Go, a snap or flatpak, a command for the service manager, a script of such a program), instead of \
silently running it on kernel sockets. An LD_PRELOAD that is already set stays, ours behind it. For a service, see `mqttshim \
systemd --help`.

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
pub(crate) enum Fallback {
    /// Kernel sockets
    Kernel,
    /// An error
    Fail,
}

impl Fallback {
    /// What MQTTSHIM_FALLBACK calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fallback::Kernel => "kernel",
            Fallback::Fail => "fail",
        }
    }
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
fn preloadable(file: &Path) -> Result<PathBuf, String> {
    let library = library::find().map_err(|error| error.to_string())?;
    warn_of_another_release(&library);
    match obstacle_of(file, &library) {
        Ok(None) => Ok(library),
        Ok(Some(why)) => Err(why),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Library and dpu-server understand the releases next to their own; whoever finds another one should know.
fn warn_of_another_release(library: &Path) {
    let own = env!("CARGO_PKG_VERSION");
    if let Ok(Some(version)) = elf::version(library)
        && version != own
    {
        let shown = library.display();
        eprintln!(
            "mqttshim: warning: {shown} is of release {version}, this command of {own}; install both from one release"
        );
    }
}

/// What keeps `library` out of the program, as a sentence; `None` if nothing does.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn obstacle_of(file: &Path, library: &Path) -> anyhow::Result<Option<String>> {
    if let Some(wrapper) = wrapper::of(file) {
        return Ok(Some(format!("{} cannot be preloaded: {wrapper}", file.display())));
    }
    let loaded = match program::interpreter(file) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let through = match loaded == file {
        true => String::new(),
        false => format!(" (interpreter of the script {})", file.display()),
    };
    let obstacle = elf::obstacle(&loaded, library)?;
    Ok(obstacle.map(|why| format!("{}{through} cannot be preloaded: {why}", loaded.display())))
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
    let fallback = args.fallback.map(|fallback| OsString::from(fallback.name()));
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
