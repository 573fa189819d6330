//! Goodput over a wire that loses: our own TCP/IP and the kernel's, serving the same kernel clients over the same wire, in turn.
//!
//! ```text
//! cargo bench -p dpu-server --bench goodput                 a table; as root, in network namespaces of its own, some two minutes
//! cargo bench -p dpu-server --bench goodput -- 100          with so many frames lost in ten thousand
//!
//! kernel clients ─ mq0 ═ [wire: loss, 5 ms each way] ═ mq1 ─┬─ AF_XDP, our own TCP/IP ─┐
//!                                                           └─ the kernel's, elsewhere ┴─ a server each
//! ```
//!
//! A stream is measured at the client, after it has had time to find its pace: bytes read, or bytes that its socket took.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod client;
mod server;
mod sizes;

use std::net::Ipv4Addr;
use std::time::Duration;

use mqttshim_integration::lossy::{Faults, Wire, wire::End};
use mqttshim_integration::namespace::{self, CARD_INTERFACE, Link, Namespace, WIRE};

use self::client::{Course, Target, measure};
use self::server::{KERNELS, OURS};

/// Half a round trip.
const DELAY: Duration = Duration::from_millis(5);
/// Frames in ten thousand.
const LOST: [usize; 3] = [0, 10, 100];
/// Streams at once: nothing on the wire is shared but its clock, and loss is luck.
const STREAMS: usize = 4;
const TURNS: usize = 5;
const SEED: u64 = 1;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let lost = match words.first().map(|word| word.parse()) {
        None => LOST.to_vec(),
        Some(Ok(one)) => vec![one],
        Some(Err(_)) => {
            eprintln!("goodput: {} is no number of frames in ten thousand", words[0]);
            std::process::exit(2);
        }
    };
    println!(
        "MB/s a stream, median of {TURNS} turns of {STREAMS} streams (middle half of the turns' ratios); round trip {:?}",
        2 * DELAY
    );
    println!(
        "| lost | bytes go | our TCP/IP | the kernel's, same buffers | ours against it | the kernel's, as it comes | ours against it |"
    );
    println!("|---|---|---|---|---|---|---|");
    for lost in lost {
        let Some(_namespace) = Namespace::enter(Link::Wire) else { return };
        namespace::beyond(CARD_INTERFACE, KERNELS_NET, server::start).join().expect("both serve");
        let faults = Faults { lost, delay: DELAY, ..Faults::default() };
        let kernel = End { interface: WIRE[0], addresses: &[CLIENT.into()] };
        let card = End { interface: WIRE[1], addresses: &[OURS.into(), KERNELS.into()] };
        let wire = Wire::start(kernel, card, faults, SEED);
        for course in [Course::FromServer, Course::ToServer] {
            row(lost, course);
        }
        let counts = wire.counts();
        assert_eq!(counts.overflowed, 0, "the wire could not follow: {counts:?}");
    }
}

/// The client's address, which [`Namespace::enter`] gives, and the kernel server's.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const KERNELS_NET: &str = "10.77.0.3/24";

fn row(lost: usize, course: Course) {
    let mut targets = vec![
        Target { address: OURS, port: server::BOUNDED, is_bounded: true },
        Target { address: KERNELS, port: server::BOUNDED, is_bounded: true },
    ];
    // Buffers that grow, and no loss: that would measure this machine's wire.
    if lost > 0 {
        targets.push(Target { address: KERNELS, port: server::FREE, is_bounded: false });
    }
    let mut figures = vec![Vec::new(); targets.len()];
    for turn in 0..TURNS {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        // So that what the machine does meanwhile hits all alike.
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            figures[at].push(measure(targets[at], course, STREAMS));
        }
    }
    let ours = &figures[0];
    let others = figures[1..].iter().map(|it| format!("{} | {}", megabytes(it), ratio(ours, it)));
    let others: Vec<String> =
        others.chain((figures.len()..3).map(|_| "– | –".to_owned())).collect();
    println!(
        "| {} % | {course} | {} | {} |",
        lost as f64 / 100.0,
        megabytes(ours),
        others.join(" | ")
    );
}

fn megabytes(bytes_a_second: &[f64]) -> String {
    format!("{:.2}", quantile(bytes_a_second, 0.5) / 1e6)
}

/// Of medians, and the middle half of the turns' own.
fn ratio(ours: &[f64], theirs: &[f64]) -> String {
    let of_turns: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    format!(
        "{:.2}× ({:.2}–{:.2})",
        quantile(ours, 0.5) / quantile(theirs, 0.5),
        quantile(&of_turns, 0.25),
        quantile(&of_turns, 0.75)
    )
}

fn quantile(figures: &[f64], at: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}
