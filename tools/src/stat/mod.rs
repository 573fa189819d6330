//! `mqttshim stat`: what dpu-server is doing, from its metrics.
//!
//! ```text
//! dpu-server --metrics HOST:PORT ──HTTP──► Samples ──► View ──► text or JSON
//! ```
//!
//! Reads only.

mod http;
mod prometheus;
mod view;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use self::prometheus::Samples;
use self::view::View;

/// Shown below the options.
pub(crate) const HELP: &str = "\
Examples:
  mqttshim stat                                    totals since dpu-server started
  mqttshim stat -i 2                               every 2 seconds, with rates, until interrupted
  mqttshim stat --metrics 127.0.0.1:9200 --json    one look, for a program

Shows who distributes PUBLISHes and why the broker does where it does. dpu-server must run with --metrics HOST:PORT.

Exit status: 0 shown; 1 no answer; 2 wrong usage.";

/// Where dpu-server's metrics are looked for when nothing is said.
const METRICS_DEFAULT: &str = "127.0.0.1:9184";

/// Arguments of `mqttshim stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// What dpu-server was given as --metrics
    #[arg(long, value_name = "HOST:PORT", default_value = METRICS_DEFAULT)]
    metrics: String,
    /// Look again every so many seconds and show rates
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: Option<u32>,
    /// Print JSON, one object a look
    #[arg(long)]
    json: bool,
}

/// Runs `mqttshim stat`.
pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let mut before: Option<(Samples, Instant)> = None;
    loop {
        let now = Samples::parse(&http::get(&args.metrics, "/metrics")?);
        let taken = Instant::now();
        let earlier = before.as_ref().map(|(samples, at)| (samples, taken - *at));
        let view = View { now: &now, before: earlier };
        let mut out = std::io::stdout().lock();
        let text = if args.json { format!("{}\n", view.to_json()) } else { view.to_text() };
        if !args.json && before.is_some() {
            writeln!(out).context("cannot print")?;
        }
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot print")?;
        let Some(interval) = args.interval else { return Ok(ExitCode::SUCCESS) };
        before = Some((now, taken));
        std::thread::sleep(Duration::from_secs(u64::from(interval)));
    }
}
