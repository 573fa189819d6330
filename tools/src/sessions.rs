//! `mqttshim sessions`: the MQTT sessions dpu-server knows of, and forgetting those that are offline.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::{ServerArgs, Words};

/// Shown below the options.
pub(crate) const HELP: &str = "\
Examples:
  mqttshim sessions                        sessions that wait for their client, or that nobody knows
  mqttshim sessions --connected --json     all of them, for a program
  mqttshim sessions forget pump-7          what pump-7 subscribed to counts no more
  mqttshim sessions forget --all           so for every client that is offline

A session that is offline (clean start off, or a session expiry) keeps every PUBLISH that matches it with the broker, which may \
keep the message for it. dpu-server forgets it when it expires, when its client comes back with a clean start, or when told so here.

Who may ask: root, and the user dpu-server runs as.

Exit status: 0 done; 1 not done, said on standard error; 2 wrong usage.";

/// Shown below the options of `forget`.
const FORGET_HELP: &str = "\
Forget a session that the broker has dropped by itself (mosquitto's persistent_client_expiration, or by hand), or whose messages \
do not matter. As long as the broker does keep it, it gets none of the messages the card distributes. When its client comes back, \
and the broker goes on with the session, dpu-server knows nothing of its subscriptions: every PUBLISH goes to the broker until that \
session ends. Connected clients are never forgotten.

--all also tells dpu-server that the broker keeps no session from before it (dpu-server run --older-sessions).

Examples:
  mqttshim sessions forget pump-7
  mqttshim sessions forget --broker 2 pump-7
  mqttshim sessions forget --all";

/// Arguments of `mqttshim sessions`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Also show the sessions whose client is connected
    #[arg(long)]
    connected: bool,
    /// Print JSON: one array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Have dpu-server forget sessions that are offline
    #[command(after_long_help = FORGET_HELP)]
    Forget {
        #[command(flatten)]
        server: ServerArgs,
        /// The client identifier
        #[arg(value_name = "CLIENT-ID", required_unless_present = "all")]
        client_id: Option<String>,
        /// Every session that is offline, and what there may be from before dpu-server
        #[arg(long, conflicts_with = "client_id")]
        all: bool,
    },
}

/// Runs `mqttshim sessions`.
pub(crate) fn run(args: &SessionsArgs) -> Result<ExitCode> {
    let text = match &args.command {
        None => list(&args.list)?,
        Some(Command::Forget { server, client_id: Some(id), .. }) => {
            server.ask("forget-session", &[("client_id", id)])?;
            format!("forgot {}\n", id.escape_debug())
        }
        Some(Command::Forget { server, client_id: None, .. }) => {
            let (_, count) = server.ask("forget-sessions", &[])?;
            format!("forgot {count} {}\n", if count == 1 { "session" } else { "sessions" })
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> Result<String> {
    let (mut sessions, _) = args.server.ask("list-sessions", &[])?;
    sessions
        .retain(|it| args.connected || word(it, "state") == "offline" || word(it, "known") == "no");
    Ok(if args.json {
        format!("{}\n", sessions.iter().map(to_json).collect::<Value>())
    } else {
        table(&sessions)
    })
}

fn word<'s>(session: &'s Words, key: &str) -> &'s str {
    session.get(key).map_or("?", String::as_str)
}

fn number(session: &Words, key: &str) -> Option<u64> {
    session.get(key)?.parse().ok()
}

fn to_json(session: &Words) -> Value {
    json!({
        "broker": number(session, "broker"),
        "program": word(session, "program"),
        "client_id": session.get("client_id"),
        "state": word(session, "state"),
        "is_known": word(session, "known") == "yes",
        "is_persistent": word(session, "persistent") == "yes",
        "subscriptions": number(session, "subscriptions"),
        "expires_in_s": number(session, "expires_in_s"),
    })
}

fn table(sessions: &[Words]) -> String {
    if sessions.is_empty() {
        return "no session waits for its client, and none is unknown\n".to_owned();
    }
    let mut rows =
        vec![["BROKER", "CLIENT-ID", "STATE", "SUBSCRIPTIONS", "FORGOTTEN"].map(str::to_owned)];
    rows.extend(sessions.iter().map(row));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn row(session: &Words) -> [String; 5] {
    let is_known = word(session, "known") == "yes";
    [
        format!("{} {}", word(session, "broker"), word(session, "program")),
        session.get("client_id").map_or_else(|| "-".to_owned(), |it| it.escape_debug().to_string()),
        word(session, "state").to_owned(),
        (if is_known { word(session, "subscriptions") } else { "unknown" }).to_owned(),
        forgotten(number(session, "expires_in_s")),
    ]
}

fn forgotten(expires_in_s: Option<u64>) -> String {
    match expires_in_s {
        None => "-".to_owned(),
        Some(seconds @ ..120) => format!("in {seconds} s"),
        Some(seconds @ ..7_200) => format!("in {} min", seconds / 60),
        Some(seconds @ ..172_800) => format!("in {} h", seconds / 3_600),
        Some(seconds) => format!("in {} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_a_table_in_which_no_name_breaks_a_line() {
        let session = |words: &[(&str, &str)]| {
            words.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect::<Words>()
        };
        let same = [("broker", "1"), ("program", "mosquitto")];
        let offline = [("client_id", "a\nb"), ("state", "offline"), ("known", "yes")];
        let more = [("subscriptions", "3"), ("expires_in_s", "3600")];
        let unknown = [("state", "connected"), ("known", "no"), ("subscriptions", "0")];
        let sessions = [
            session(&[&same[..], &offline, &more].concat()),
            session(&[&same[..], &unknown].concat()),
        ];
        let text = table(&sessions);
        let lines: Vec<_> =
            text.lines().map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "BROKER CLIENT-ID STATE SUBSCRIPTIONS FORGOTTEN",
                "1 mosquitto a\\nb offline 3 in 60 min",
                "1 mosquitto - connected unknown -",
            ]
        );
    }
}
