//! Traces: what the server sends, what we answer, with a clock that only the test moves.

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A server that answers by hand.
struct Trace {
    tcp: Tcp,
    now_ns: u64,
    /// The server's next sequence number.
    seq: u32,
}

impl Trace {
    fn syn_sent(initial: u32) -> Trace {
        let mut trace = Trace { tcp: Tcp::connect(initial), now_ns: 0, seq: 5000 };
        let syn = trace.sends();
        assert_eq!((syn.0, syn.2), (initial, flags::SYN));
        trace
    }

    fn open() -> Trace {
        let mut trace = Trace::syn_sent(100);
        let syn_ack = Segment {
            seq: 4999,
            ack: 101,
            flags: flags::SYN | flags::ACK,
            window: 1000,
            mss: Some(1000),
            window_scale: Some(0),
            payload: b"",
        };
        assert_eq!(trace.tcp.handle_segment(&syn_ack), Progress::Connected);
        assert_eq!(trace.sends(), (101, 5000, flags::ACK, 0));
        trace.silent();
        trace
    }

    /// (seq, ack, flags, bytes) of the next segment.
    #[track_caller]
    fn sends(&mut self) -> (u32, u32, u8, usize) {
        let segment = self.tcp.poll_segment(self.now_ns).expect("a segment");
        (segment.seq, segment.ack, segment.flags, segment.payload.len())
    }

    #[track_caller]
    fn silent(&mut self) {
        assert_eq!(self.tcp.poll_segment(self.now_ns), None);
    }

    fn hears(&mut self, ack: u32, more: u8, payload: &'static [u8]) -> Progress<'static> {
        let segment = Segment {
            seq: self.seq,
            ack,
            flags: flags::ACK | more,
            window: 1000,
            payload,
            ..Segment::default()
        };
        self.tcp.handle_segment(&segment)
    }

    fn passes(&mut self, ns: u64) -> Progress<'static> {
        self.now_ns += ns;
        self.tcp.handle_timeout(self.now_ns)
    }
}

#[test]
fn a_lost_syn_is_sent_again_and_again_and_then_given_up() {
    let mut trace = Trace::syn_sent(7);
    trace.silent();
    for _ in 1..TRIES_MAX {
        assert_eq!(trace.passes(4 * SECOND), Progress::None);
        assert_eq!(trace.sends(), (7, 0, flags::SYN, 0));
    }
    assert_eq!(trace.passes(4 * SECOND), Progress::Closed("no answer from the server"));
}

#[test]
fn a_reset_in_answer_to_the_syn_is_a_refusal() {
    let mut trace = Trace::syn_sent(100);
    let reset = Segment { ack: 101, flags: flags::RST | flags::ACK, ..Segment::default() };
    assert_eq!(trace.tcp.handle_segment(&reset), Progress::Closed("connection refused"));
}

#[test]
fn the_acknowledgement_of_an_older_connection_is_met_with_a_reset() {
    let mut trace = Trace::syn_sent(100);
    let challenge = Segment { ack: 77, flags: flags::ACK, ..Segment::default() };
    assert_eq!(trace.tcp.handle_segment(&challenge), Progress::Stale);
    let reset = Segment { flags: flags::RST | flags::ACK, ..challenge };
    assert_eq!(trace.tcp.handle_segment(&reset), Progress::None);
}

#[test]
fn data_comes_once_and_in_order() {
    let mut trace = Trace::open();
    assert_eq!(trace.hears(101, 0, b"abcd"), Progress::Data(b"abcd"));
    assert_eq!(trace.tcp.ack_due(), AckDue::Later(4));
    assert_eq!(trace.sends(), (101, 5004, flags::ACK, 0));
    // Repeated: acknowledged again, not delivered again.
    assert_eq!(trace.hears(101, 0, b"abcd"), Progress::None);
    assert_eq!(trace.tcp.ack_due(), AckDue::Now);
    assert_eq!(trace.sends(), (101, 5004, flags::ACK, 0));
    // Repeated with more: only the new part.
    assert_eq!(trace.hears(101, 0, b"abcdef"), Progress::Data(b"ef"));
    assert_eq!(trace.sends(), (101, 5006, flags::ACK, 0));
    // A gap: dropped, and the missing place named.
    trace.seq = 5010;
    assert_eq!(trace.hears(101, 0, b"later"), Progress::None);
    assert_eq!(trace.sends(), (101, 5006, flags::ACK, 0));
}

#[test]
fn two_full_segments_are_acknowledged_at_once() {
    let mut trace = Trace::open();
    assert_eq!(trace.hears(101, 0, &[0; 1460]), Progress::Data(&[0; 1460]));
    assert_eq!(trace.tcp.ack_due(), AckDue::Later(1460));
    trace.seq += 1460;
    assert_eq!(trace.hears(101, 0, &[0; 1460]), Progress::Data(&[0; 1460]));
    assert_eq!(trace.tcp.ack_due(), AckDue::Now);
}

#[test]
fn sending_respects_mss_and_window() {
    let mut trace = Trace::open();
    trace.tcp.write(&[1; 2500]);
    assert_eq!(trace.sends(), (101, 5000, flags::ACK | flags::PSH, 1000));
    trace.silent();
    assert_eq!(trace.hears(1101, 0, b""), Progress::None);
    assert_eq!(trace.sends(), (1101, 5000, flags::ACK | flags::PSH, 1000));
    trace.silent();
}

#[test]
fn lost_data_is_sent_again_from_the_first_missing_byte() {
    let mut trace = Trace::open();
    trace.tcp.write(b"hello");
    assert_eq!(trace.sends(), (101, 5000, flags::ACK | flags::PSH, 5));
    trace.hears(103, 0, b"");
    // The acknowledgement of a part stopped the timer; the rest is repeated when the next deadline passes.
    assert_eq!(trace.tcp.next_deadline(), Some(RETRANSMIT_NS));
    trace.passes(SECOND);
    assert_eq!(trace.sends(), (103, 5000, flags::ACK | flags::PSH, 3));
    trace.hears(106, 0, b"");
    assert_eq!(trace.tcp.next_deadline(), None);
}

#[test]
fn an_acknowledgement_of_the_first_transmission_counts_after_a_retransmission_began() {
    let mut trace = Trace::open();
    trace.tcp.write(b"hello");
    trace.sends();
    trace.passes(SECOND);
    trace.hears(106, 0, b"");
    trace.silent();
    assert_eq!(trace.tcp.next_deadline(), None);
}

#[test]
fn a_shut_window_is_probed_until_it_opens() {
    let mut trace = Trace::open();
    let shut = Segment { seq: 5000, ack: 101, flags: flags::ACK, ..Segment::default() };
    trace.tcp.handle_segment(&shut);
    trace.tcp.write(b"xyz");
    trace.silent();
    trace.passes(SECOND);
    assert_eq!(trace.sends(), (101, 5000, flags::ACK | flags::PSH, 1));
    trace.hears(102, 0, b"");
    assert_eq!(trace.sends(), (102, 5000, flags::ACK | flags::PSH, 2));
}

#[test]
fn our_fin_is_sent_once_and_the_servers_ends_the_connection() {
    let mut trace = Trace::open();
    trace.tcp.write(b"bye");
    trace.tcp.close();
    assert_eq!(trace.sends(), (101, 5000, flags::ACK | flags::PSH | flags::FIN, 3));
    trace.silent();
    assert_eq!(trace.hears(105, 0, b""), Progress::None);
    trace.silent();
    assert_eq!(trace.hears(105, flags::FIN, b""), Progress::None);
    assert_eq!(trace.sends(), (105, 5001, flags::ACK, 0));
    assert_eq!(trace.tcp.finished(), Progress::Closed("closed"));
}

#[test]
fn a_server_that_closes_first_gets_our_fin_and_its_last_bytes_are_delivered() {
    let mut trace = Trace::open();
    assert_eq!(trace.hears(101, flags::FIN, b"end"), Progress::Data(b"end"));
    assert_eq!(trace.tcp.finished(), Progress::None);
    assert_eq!(trace.sends(), (101, 5004, flags::ACK | flags::FIN, 0));
    trace.seq = 5004;
    trace.hears(102, 0, b"");
    assert!(trace.tcp.is_closed());
}

#[test]
fn only_an_exact_reset_counts() {
    let mut trace = Trace::open();
    trace.seq = 5001;
    assert_eq!(trace.hears(101, flags::RST, b""), Progress::None);
    trace.seq = 5000;
    let reset = Progress::Closed("connection reset by the server");
    assert_eq!(trace.hears(101, flags::RST, b""), reset);
}

#[test]
fn sequence_numbers_wrap() {
    let mut trace = Trace::syn_sent(u32::MAX);
    let syn_ack = Segment {
        seq: u32::MAX,
        ack: 0,
        flags: flags::SYN | flags::ACK,
        window: 1000,
        ..Segment::default()
    };
    assert_eq!(trace.tcp.handle_segment(&syn_ack), Progress::Connected);
    trace.sends();
    trace.seq = 0;
    assert_eq!(trace.hears(0, 0, b"ab"), Progress::Data(b"ab"));
    trace.tcp.write(b"z");
    assert_eq!(trace.sends(), (0, 2, flags::ACK | flags::PSH, 1));
    trace.hears(1, 0, b"");
    assert_eq!(trace.tcp.next_deadline(), None);
}
