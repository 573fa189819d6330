//! The differential oracle over many seeds. See `mqttshim_integration::differential`; `make oracle` asks for more of them.
//!
//! `MQTTSHIM_BROKER=aedes` plays for another broker than mosquitto, `MQTTSHIM_TRUST=observed` with another trust than `suback`,
//! `MQTTSHIM_SEED=n` the scenario of one seed, `MQTTSHIM_SEEDS=n` those of so many seeds from there on (from 1 if none is said).
//! `MQTTSHIM_WORKERS=n` plays on so many rigs side by side. Without either number: as many as fit the time.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use mqttshim_integration::differential::{Brand, Oracle, Terms, Trust};

/// For all scenarios of one trust, unless their number is said.
const TIME: Duration = Duration::from_secs(22);
/// What the card has to distribute of the PUBLISHes it could.
const SHARE_MIN: f64 = 0.6;
/// Rigs side by side: a scenario waits more than it works.
const WORKERS: usize = 3;
/// Seeds from which on their share says something.
const SEEDS_FOR_SHARE: u64 = 20;
/// One seed in so many may show that the broker differs from itself.
const OPEN_EVERY: u64 = 20;

fn setting<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[track_caller]
fn consult(terms: Terms) {
    if !terms.brand.is_here() {
        return;
    }
    let (said, seeds) = (setting("MQTTSHIM_SEED"), setting("MQTTSHIM_SEEDS"));
    let oracle = Oracle {
        terms,
        first: said.unwrap_or(1),
        count: seeds.or(said.map(|_| 1)),
        time: TIME,
        workers: setting("MQTTSHIM_WORKERS").unwrap_or(WORKERS),
    };
    let summary = oracle.run().unwrap_or_else(|report| panic!("{report}"));
    eprintln!("oracle: {}\n{}", summary.headline, summary.coverage);
    for (seed, differences) in &summary.open {
        eprintln!("oracle: left open by {}, seed {seed}:\n{differences}", terms.brand);
    }
    let open = summary.open.len() as u64;
    assert!(open <= 1 + summary.played / OPEN_EVERY, "{open} scenarios say nothing");
    assert!(summary.dropped < 1.0, "the card dropped copies, for which no scenario is meant");
    if summary.played >= SEEDS_FOR_SHARE {
        let share = summary.coverage.share();
        assert!(share >= SHARE_MIN, "the card distributed {share:.2} of what it could");
    }
}

fn terms(trust: Trust) -> Terms {
    Terms { brand: setting("MQTTSHIM_BROKER").unwrap_or_default(), trust }
}

/// What `make oracle` and the commands of reports run.
#[test]
fn oracle_on_the_terms_of_the_environment() {
    if let Some(trust) = setting("MQTTSHIM_TRUST") {
        consult(terms(trust));
    }
}

#[test]
fn differential_every_client_gets_what_the_broker_alone_would_have_sent_it() {
    consult(Terms { brand: Brand::Mosquitto, trust: Trust::Suback });
}

#[test]
fn differential_by_observation_every_client_gets_what_the_broker_alone_would_have_sent_it() {
    consult(Terms { brand: Brand::Mosquitto, trust: Trust::Observed });
}
