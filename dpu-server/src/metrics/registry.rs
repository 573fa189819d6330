//! The board's numbers as Prometheus metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus::{CounterVec, GaugeVec, Opts, TextEncoder};

use super::{BLIND, Blind, Board, Family, Snapshot, readings};

/// One series.
enum Series {
    Counter(prometheus::Counter, f64),
    Gauge(prometheus::Gauge, f64),
}

/// All series of a board. Belongs to the thread that serves them.
pub struct Registry {
    registry: prometheus::Registry,
    board: Arc<Board>,
    /// In the board's order.
    series: Vec<Series>,
    blind: GaugeVec,
}

enum Vector {
    Counters(CounterVec),
    Gauges(GaugeVec),
}

impl Registry {
    /// Registers every series of the board.
    ///
    /// # Panics
    /// If the list of metrics contradicts itself, which a test excludes.
    #[must_use]
    pub fn new(board: Arc<Board>) -> Registry {
        let registry = prometheus::Registry::new();
        let mut vectors: Vec<(&'static str, Vector)> = Vec::new();
        let mut series = Vec::new();
        readings(&Snapshot::default(), |family, labels, _| {
            let known = vectors.iter().position(|(name, _)| *name == family.name);
            let index = known.unwrap_or_else(|| {
                vectors.push((family.name, register(&registry, family)));
                vectors.len() - 1
            });
            series.push(match &vectors[index].1 {
                Vector::Counters(vector) => {
                    Series::Counter(vector.with_label_values(labels), family.scale)
                }
                Vector::Gauges(vector) => {
                    Series::Gauge(vector.with_label_values(labels), family.scale)
                }
            });
        });
        let Vector::Gauges(blind) = register(&registry, &BLIND) else {
            unreachable!("declared as one")
        };
        Registry { registry, board, series, blind }
    }

    /// The text form of what the board says now.
    ///
    /// # Errors
    /// What the encoder reports.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        for (series, cell) in self.series.iter().zip(&self.board.cells) {
            // Counts stay far below what an f64 holds exactly.
            let value = cell.load(Ordering::Relaxed) as f64;
            match series {
                Series::Counter(counter, scale) => {
                    counter.inc_by((value * scale - counter.get()).max(0.0));
                }
                Series::Gauge(gauge, scale) => gauge.set(value * scale),
            }
        }
        self.blind.reset();
        // A holder that panicked has ended the process.
        let names =
            self.board.blind.lock().map_or_else(|_| Arc::default(), |names| Arc::clone(&names));
        for Blind { reason, name } in names.iter() {
            self.blind.with_label_values(&[reason.label(), name]).inc();
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

fn register(registry: &prometheus::Registry, family: &Family) -> Vector {
    let opts = Opts::new(family.name, family.help);
    if family.is_counter {
        let vector = CounterVec::new(opts, family.labels).expect("a valid name");
        registry.register(Box::new(vector.clone())).expect("each name once");
        Vector::Counters(vector)
    } else {
        let vector = GaugeVec::new(opts, family.labels).expect("a valid name");
        registry.register(Box::new(vector.clone())).expect("each name once");
        Vector::Gauges(vector)
    }
}
