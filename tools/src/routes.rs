//! `mqttshim routes flush`: has dpu-server learn anew who gets what.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::control::ServerArgs;

/// Shown below the options.
pub(crate) const HELP: &str = "\
For when who may do what has changed and dpu-server could not see it: a database behind a trusted plugin, a clock. Until routes are \
learned anew, PUBLISHes go to the broker; nothing is lost. Who may ask: root, and the user dpu-server runs as.

Examples:
  mqttshim routes flush
  mqttshim routes flush --session /run/user/1000/mqttshim/session.sock

Exit status: 0 done; 1 not done, said on standard error; 2 wrong usage.";

/// `mqttshim routes …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Routes {
    /// Have dpu-server forget who gets the messages of each topic, and who may, and learn it anew
    #[command(after_long_help = HELP)]
    Flush {
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Runs it.
pub(crate) fn run(command: &Routes) -> Result<ExitCode> {
    let Routes::Flush { server } = command;
    let (_, count) = server.ask("flush-routes", &[])?;
    let noun = if count == 1 { "topic" } else { "topics" };
    writeln!(std::io::stdout(), "forgot the routes of {count} {noun}").context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}
