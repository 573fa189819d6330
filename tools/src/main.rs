//! The mqttshim command: run, systemd, doctor, stat, sessions, routes, bench.
//!
//! Beside the broker and dpu-server, never between them: nothing here is needed for the library to work. Each command is
//! a module; this file is the command line.

#![deny(unsafe_code)]

mod bench;
mod control;
mod doctor;
mod library;
mod routes;
mod run;
mod sessions;
mod stat;
mod systemd;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

const HELP: &str = "\
Examples:
  mqttshim run -- mosquitto -c my.conf            a broker on the card's sockets
  mqttshim systemd mosquitto.service              the same for a service, as a drop-in
  mqttshim doctor                                 what would keep that from working
  mqttshim stat -i 2                              who distributes, and why
  mqttshim sessions forget pump-7                 a session that will not come back
  mqttshim bench fanout --target plain=127.0.0.1:1883 --target ours=127.0.0.1:1884

Exit status: 0 success; 1 failure, said on standard error; 2 wrong usage; `run` and `systemd` have more, see their --help.";

/// Runs brokers on the card's sockets, looks after them, and measures them.
#[derive(Debug, Parser)]
#[command(name = "mqttshim", version, after_long_help = HELP, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a program with the library preloaded, or say why that cannot work
    #[command(after_long_help = run::HELP)]
    Run(run::RunArgs),
    /// Print the systemd drop-in that puts a service on the card, or dpu-server's unit
    #[command(after_long_help = systemd::HELP)]
    Systemd(systemd::SystemdArgs),
    /// Check this machine, and say what to do
    #[command(after_long_help = doctor::HELP)]
    Doctor,
    /// Show what dpu-server is doing, and why it does not do more
    #[command(after_long_help = stat::HELP)]
    Stat(stat::StatArgs),
    /// Show the MQTT sessions that keep messages with the broker, or have them forgotten
    #[command(after_long_help = sessions::HELP)]
    Sessions(sessions::SessionsArgs),
    /// Have dpu-server learn anew who gets what
    #[command(subcommand)]
    Routes(routes::Routes),
    /// Measure servers, in turn in one run
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Print a completion script for a shell
    #[command(
        after_long_help = "Example:\n  mqttshim completions bash > /etc/bash_completion.d/mqttshim"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => Ok(run::run(args)),
        Command::Systemd(args) => systemd::run(args),
        Command::Doctor => doctor::run(),
        Command::Stat(args) => stat::run(args),
        Command::Sessions(args) => sessions::run(args),
        Command::Routes(command) => routes::run(command),
        Command::Bench(bench) => bench::run(bench),
        Command::Completions { shell } => completions(*shell),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("mqttshim: {error:#}");
        ExitCode::FAILURE
    })
}

fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mqttshim", &mut script);
    std::io::stdout().write_all(&script).context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

/// Whoever reads our output has enough, like `head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        let cli = Cli::try_parse_from(["mqttshim", "run", "--", "mosquitto", "-c", "x"]).unwrap();
        assert!(matches!(cli.command, Command::Run(_)));
        assert!(Cli::try_parse_from(["mqttshim", "run"]).is_err());
    }

    #[test]
    fn a_measurement_of_nothing_is_wrong_usage() {
        let parse = |words: &[&str]| Cli::try_parse_from(["mqttshim", "bench"].iter().chain(words));
        for nothing in [&["fanout"][..], &["echo"], &["connect"], &["hold"]] {
            let error = parse(nothing).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains("--target"), "{error}");
        }
        assert!(parse(&["fanout", "--bare-send"]).is_ok());
        assert!(parse(&["fanout", "--ready-frames", "mem"]).is_ok());
    }

    #[test]
    fn impossible_settings_of_a_measurement_are_refused() {
        let fails = |more: &[&str]| {
            let start = ["mqttshim", "bench", "fanout", "--target", "a=1883"];
            Cli::try_parse_from(start.iter().chain(more)).unwrap_err().to_string()
        };
        assert!(Cli::try_parse_from(["mqttshim", "bench", "fanout", "--target", "a=1883"]).is_ok());
        assert!(fails(&["--payload", "7"]).contains('7'));
        assert!(fails(&["--qos", "2"]).contains('2'));
        assert!(fails(&["--rate", "0"]).contains("more than 0"));
        assert!(fails(&["--duration", "-1"]).contains("-1"));
        assert!(fails(&["--subscribers", "0"]).contains('0'));
        assert!(fails(&["--interface", "x", "--setup-veth"]).contains("cannot be used with"));
        assert!(fails(&["--client-address", "198.18.0.300"]).contains("IPv4"));
        assert!(fails(&["--target", "b=1884,cpu=3"]).contains("there are pid= and port="));
    }
}
