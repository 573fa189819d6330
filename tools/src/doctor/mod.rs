//! `mqttshim doctor`: what on this machine would keep the library or dpu-server from working, and what to do about it.
//!
//! Each check looks at one thing and gives one finding. Changes nothing; the only traffic is a connection to each session
//! socket, closed at once.

mod session;
mod system;

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::library;

use crate::run::elf;
pub(crate) use session::own_paths as session_paths;

/// Shown below the options.
pub(crate) const HELP: &str = "\
Example:
  mqttshim doctor

Looks as the user who runs it, with the environment it has: run it as the broker's user, with the broker's MQTTSHIM_* \
variables. Each line is \"ok\", \"note\" (works, worth knowing) or \"mend\" (will not work), with what to do below it.

Exit status: 0 nothing to mend; 1 something to mend.";

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Verdict {
    /// Fine.
    Ok,
    /// Works, worth knowing.
    Note,
    /// Will not work.
    Mend,
}

/// What a check found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Finding {
    verdict: Verdict,
    /// What was looked at.
    subject: &'static str,
    /// What is so.
    fact: String,
    /// What to do.
    advice: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, fact: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Ok, subject, fact: fact.into(), advice: None }
    }

    fn note(subject: &'static str, fact: impl Into<String>, advice: impl Into<String>) -> Finding {
        let advice = Some(advice.into());
        Finding { verdict: Verdict::Note, subject, fact: fact.into(), advice }
    }

    fn mend(subject: &'static str, fact: impl Into<String>, advice: impl Into<String>) -> Finding {
        let advice = Some(advice.into());
        Finding { verdict: Verdict::Mend, subject, fact: fact.into(), advice }
    }

    fn to_text(&self) -> String {
        let word = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Mend => "mend",
        };
        let mut text = format!("{word:<5} {:<12} {}\n", self.subject, self.fact);
        if let Some(advice) = &self.advice {
            text.push_str(&format!("{:<19}→ {advice}\n", ""));
        }
        text
    }
}

/// Runs `mqttshim doctor`.
pub(crate) fn run() -> Result<ExitCode> {
    let mut findings = vec![library()];
    findings.extend(session::check());
    findings.extend(system::check());
    findings.extend(variables());
    let mut out = std::io::stdout().lock();
    for finding in &findings {
        out.write_all(finding.to_text().as_bytes()).context("cannot print")?;
    }
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(if worst == Some(Verdict::Mend) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The library is there, and a program loads it without a word.
fn library() -> Finding {
    let path = match library::find() {
        Ok(path) => path,
        Err(error) => {
            let advice = "build or install it, or name it with MQTTSHIM_LIBRARY";
            return Finding::mend("library", error.to_string(), advice);
        }
    };
    let shown = path.display();
    // `true` of this machine: dynamically linked, does nothing.
    let tried = Command::new("true")
        .env("LD_PRELOAD", &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() && output.stderr.is_empty() => release(&path),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let fact = format!("{shown} does not load: {said}");
            Finding::mend("library", fact, "build it for this machine's libc and architecture")
        }
        Err(error) => {
            let fact = format!("{shown}; cannot try it: {error}");
            Finding::note("library", fact, "needs the program `true` in PATH")
        }
    }
}

/// A library that loads: is it of this release?
fn release(path: &Path) -> Finding {
    let (shown, own) = (path.display(), env!("CARGO_PKG_VERSION"));
    match elf::version(path) {
        Ok(Some(version)) if version == own => {
            Finding::ok("library", format!("{shown}, loads, release {version}"))
        }
        Ok(Some(version)) => Finding::note(
            "library",
            format!("{shown}, loads, release {version}, and this command is of {own}"),
            "install library, dpu-server and this command from one release",
        ),
        Ok(None) | Err(_) => Finding::note(
            "library",
            format!("{shown}, loads, and does not say its release"),
            "it is older than this command, or something else; install all from one release",
        ),
    }
}

/// Every variable the library, the agent or this program reads.
const VARIABLES: [&str; 9] = [
    "MQTTSHIM_LISTEN",
    "MQTTSHIM_RULES",
    "MQTTSHIM_SESSION",
    "MQTTSHIM_FALLBACK",
    "MQTTSHIM_LOG",
    "MQTTSHIM_TRACE",
    "MQTTSHIM_EPOLL",
    "MQTTSHIM_LIBRARY",
    "MQTTSHIM_AGENT_LOG",
];

/// Variables that steer the library, and those that only look as if.
fn variables() -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with("MQTTSHIM_") {
            continue;
        }
        let fact = format!("{name}={}", value.to_string_lossy());
        findings.push(if VARIABLES.contains(&name.as_str()) {
            Finding::ok("environment", fact)
        } else {
            let known = VARIABLES.join(", ");
            Finding::note("environment", fact, format!("means nothing; known are {known}"))
        });
    }
    findings.sort_by(|a, b| a.fact.cmp(&b.fact));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_shows_what_to_do_below() {
        let text = Finding::mend("thing", "is broken", "mend it").to_text();
        assert_eq!(text, "mend  thing        is broken\n                   → mend it\n");
        assert_eq!(Finding::ok("thing", "is fine").to_text(), "ok    thing        is fine\n");
    }

    #[test]
    fn mending_outweighs_notes() {
        assert!(Verdict::Mend > Verdict::Note && Verdict::Note > Verdict::Ok);
    }
}
