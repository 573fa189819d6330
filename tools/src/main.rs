//! The mqttshim command: run, doctor, stat, bench.

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "mqttshim", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Bench(bench) => bench::run(bench),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mqttshim: {error:#}");
        ExitCode::FAILURE
    })
}
