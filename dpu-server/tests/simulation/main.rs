//! Card and session under a small broker and a network of chance, in memory: whole lives from seeds, thousands a minute.
//!
//! ```text
//! seed ──► World ── clients, networks, the card's core, a broker ──► Model: what each subscriber must see
//! ```
//!
//! `MQTTSHIM_LIVES=20000` plays so many seeds, `MQTTSHIM_LIFE_SEED=n` begins with that one; a failing seed says the command that plays it
//! again
//! and tells every byte that moved. Clients of version 3.1.1 and 5, QoS 0 to 2, aliases, properties, No Local, overlapping subscriptions, both kinds of sessions;
//! cuts, goodbyes, takeovers, closed windows, and cards that die.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod broker;
mod client;
mod model;
mod rng;
mod wire;
mod world;

use std::time::Instant;

use world::{Tally, World};

/// What `make test` plays.
const LIVES: u64 = 1_000;
const STEPS: usize = 400;

/// Says how to play a life again, if it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "play it again: MQTTSHIM_LIFE_SEED={seed} MQTTSHIM_LIVES=1 cargo nextest run -p dpu-server --test simulation"
            );
        }
    }
}

#[test]
fn lives_of_a_card_show_every_subscriber_what_the_broker_alone_would() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let lives = number("MQTTSHIM_LIVES").unwrap_or(LIVES);
    let first = number("MQTTSHIM_LIFE_SEED").unwrap_or(1);
    let start = Instant::now();
    let mut tally = Tally::default();
    for seed in first..first + lives {
        let replay = Replay(seed);
        tally.add(World::new(seed, lives == 1).live(STEPS));
        drop(replay);
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!(
        "{lives} lives in {seconds:.0} s, {:.0} a minute: {tally:#?}",
        lives as f64 * 60.0 / seconds
    );
    if lives >= LIVES {
        // Else it would show little.
        assert!(tally.by_card * 10 > tally.messages, "the card took too few");
        assert!(tally.card_acknowledged > 0 && tally.restarts > 0 && tally.takeovers > 0);
    }
}
