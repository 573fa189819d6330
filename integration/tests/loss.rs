//! Streams over a wire that loses, repeats and reorders, between the kernel's TCP/IP and the card's own on AF_XDP: every byte comes, both ways,
//! and none waits for longer than the retransmission timers allow.
//!
//! `MQTTSHIM_LOSS_SEED=n` plays one seed again: frame by frame the wire does the same. `MQTTSHIM_TEST_LONG=1` plays ten.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use mqttshim_integration::echo::Echo;
use mqttshim_integration::lossy::wire::{End, Loss};
use mqttshim_integration::lossy::{Faults, Wire};
use mqttshim_integration::namespace::{CARD, Link, Namespace, WIRE};
use mqttshim_integration::{Card, Folder, needs};

/// The card's addresses, and the kernel's.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "fd77::1"];
const OWN: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// Half a round trip.
const DELAY: Duration = Duration::from_millis(5);
/// Streams at once.
const STREAMS: usize = 4;
const BYTES: usize = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// The shortest time-out of both ends (Linux' TCP_RTO_MIN; `clock.rs`), with a round trip and its variance on top (RFC 6298 §2.3).
const TIME_OUT: Duration = Duration::from_millis(250);
/// For everything that is no timer: the way there and back, the echo, two cores that others use too.
const SLACK: Duration = Duration::from_millis(500);

/// How long a stream in which so many frames were lost may be silent. At worst each loss of the lot took what the one before was sent again
/// by, so that the timer ran out for each, and after each it was twice as long (RFC 6298 §5.5). If frames `were_lost` before, the first may be
/// so already: a timer that ran out stays long until a round trip is measured again (§5.7).
fn silence_max(lost: usize, were_lost: bool) -> Duration {
    let first = if were_lost { 2 * TIME_OUT } else { TIME_OUT };
    SLACK + first * ((1 << lost.min(16)) - 1)
}

/// When a stream was silent, from its last bytes to the next ones.
struct Silence {
    from: Instant,
    to: Instant,
}

/// One stream, there and back. Returns its port at this end and its silences.
fn stream(address: IpAddr, port: u16, seed: usize) -> (u16, Vec<Silence>) {
    let bytes: Vec<u8> =
        (0..BYTES).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 16) as u8).collect();
    let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE).unwrap();
    rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut silences = Vec::new();
    let mut back = Vec::with_capacity(BYTES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let (mut chunk, mut last) = (vec![0; 64 * 1024], Instant::now());
        loop {
            let taken = (&stream).read(&mut chunk).unwrap();
            let now = Instant::now();
            silences.push(Silence { from: last, to: now });
            last = now;
            if taken == 0 {
                break;
            }
            back.extend_from_slice(&chunk[..taken]);
        }
    });
    assert!(back == bytes, "{address}: {} of {BYTES} bytes, or others", back.len());
    (stream.local_addr().unwrap().port(), silences)
}

/// Holds a silence against what was lost while it lasted, and just before.
fn judge(silence: &Silence, lost: &[Loss]) -> Duration {
    let during = silence.from.checked_sub(TIME_OUT).unwrap()..silence.to;
    let were_lost = lost.iter().any(|loss| loss.at < during.start);
    let lost = lost.iter().filter(|loss| during.contains(&loss.at)).count();
    let lasted = silence.to - silence.from;
    let max = silence_max(lost, were_lost);
    assert!(lasted <= max, "silent for {lasted:?}; with {lost} lost frames it may be for {max:?}");
    lasted
}

fn play(faults: Faults, card: &Card, port: u16, seed: u64) {
    let own = OWN.map(|text| text.parse().unwrap());
    let cards = ADDRESSES.map(|text| text.parse().unwrap());
    let kernel = End { interface: WIRE[0], addresses: &own };
    let wire = Wire::start(kernel, End { interface: WIRE[1], addresses: &cards }, faults, seed);
    let start = Instant::now();
    let streams: Vec<_> = std::thread::scope(|scope| {
        let one = |number: usize| scope.spawn(move || stream(cards[number % 2], port, number));
        let running: Vec<_> = (0..STREAMS).map(one).collect();
        running.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let took = start.elapsed();
    card.await_metrics("every connection is gone", |it| it.sum("mqttshim_connections", &[]) == 0.0);
    let (lost, counts) = (wire.losses(), wire.counts());
    let mut longest = Duration::ZERO;
    for (client, silences) in &streams {
        let lost: Vec<Loss> = lost.iter().filter(|it| it.client == *client).copied().collect();
        for silence in silences {
            longest = longest.max(judge(silence, &lost));
        }
    }
    assert_eq!(counts.overflowed, 0, "{counts:?}");
    assert!(counts.lost > 0, "{counts:?}");
    eprintln!("seed {seed}: {counts:?} in {took:?}; the longest silence was {longest:?}");
}

fn seeds() -> RangeInclusive<u64> {
    match std::env::var("MQTTSHIM_LOSS_SEED") {
        Ok(text) => {
            let seed = text.parse().expect("MQTTSHIM_LOSS_SEED is a number");
            seed..=seed
        }
        Err(_) if std::env::var_os("MQTTSHIM_TEST_LONG").is_some() => 1..=10,
        Err(_) => 1..=1,
    }
}

/// See the module.
fn every_byte_comes_and_none_waits_too_long(faults: Faults) {
    needs!("python3");
    let folder = Folder::new();
    let Some(_namespace) = Namespace::enter(Link::Wire) else { return };
    let port = Link::Wire.port();
    let more = ["--stack", "smoltcp", "--port", &port, "--address", CARD[0], "--address", CARD[1]];
    let card = Card::start_with(&folder, &more);
    let echo = Echo::start(&folder, &card);
    for seed in seeds() {
        eprintln!("MQTTSHIM_LOSS_SEED={seed} plays {faults:?} again");
        play(faults, &card, echo.port(), seed);
    }
}

#[test]
fn streams_go_on_when_one_frame_in_a_thousand_is_lost() {
    every_byte_comes_and_none_waits_too_long(Faults {
        lost: 10,
        delay: DELAY,
        ..Faults::default()
    });
}

#[test]
fn streams_go_on_when_one_frame_in_a_hundred_is_lost() {
    every_byte_comes_and_none_waits_too_long(Faults {
        lost: 100,
        delay: DELAY,
        ..Faults::default()
    });
}

#[test]
fn streams_go_on_when_one_frame_in_twenty_is_lost() {
    every_byte_comes_and_none_waits_too_long(Faults {
        lost: 500,
        delay: DELAY,
        ..Faults::default()
    });
}

#[test]
fn streams_go_on_when_frames_are_lost_repeated_and_overtaken() {
    let late = Duration::from_millis(3);
    let faults = Faults { lost: 100, repeated: 200, overtaken: 300, late, delay: DELAY };
    every_byte_comes_and_none_waits_too_long(faults);
}
