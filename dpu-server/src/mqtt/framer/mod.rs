//! Cuts the byte stream of one direction of one connection into MQTT Control Packets.
//!
//! MQTT has no resynchronisation mark: a packet is a fixed header (MQTT 3.1.1 §2.2), then exactly *Remaining Length*
//! bytes. After one wrong length nothing can be trusted, so every error here is final, unless the caller says otherwise: from then on bytes are only
//! handed through, and the broker, which sees them all, judges. A packet that breaks another rule has an end all the same, and a broker
//! that goes on goes on there: so does a framer that is told to ([`Framer::go_on`]).
//!
//! ```text
//!              header known: Handling?
//! next(input) ──► Whole  ──► Packet            borrowed if it arrived whole, else copied once
//!             ──► Stream ──► Start, Part…      never held
//!             ──► Refuse ──► Malformed, Raw…   for ever; or, told to go on, Part… up to its end
//! ```
//!
//! Every byte of the input comes out exactly once and in order, or is held; [`Framer::give_up`] returns what is held.
//! No I/O, no clock. Held are at most one partial fixed header, or one packet the caller asked to have whole: the caller
//! bounds it by its answer.

mod broken;

use self::broken::Length;
use super::packet::{FixedHeader, Malformed};

/// Room kept for the next packet once a split one was delivered, in bytes.
const HELD_CAPACITY_KEPT_BYTES: usize = 2048;

/// What to do with a packet whose fixed header is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Handling {
    /// Hold it until it is complete.
    Whole,
    /// Let its bytes through as they come.
    Stream,
    /// It has no business here: stop looking at this stream.
    Refuse(Malformed),
}

/// The next stretch of the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Piece<'a> {
    /// A whole packet, fixed header included.
    Packet {
        /// Its fixed header.
        header: FixedHeader,
        /// All its bytes.
        bytes: &'a [u8],
    },
    /// The first bytes of a streamed packet, fixed header included.
    Start {
        /// Its fixed header.
        header: FixedHeader,
        /// What is there of it.
        bytes: &'a [u8],
        /// Whether that is all of it.
        is_last: bool,
    },
    /// More bytes of a streamed packet, or any of one that breaks the rules.
    Part {
        /// What is there of it.
        bytes: &'a [u8],
        /// Whether the packet ends here.
        is_last: bool,
    },
    /// The stream is not MQTT, or no more to be looked at. Comes once, unless the framer is told to go on.
    Malformed {
        /// What was held; to be passed on first.
        held: &'a [u8],
        /// Why.
        error: Malformed,
    },
    /// Bytes of a stream that is not looked at.
    Raw(&'a [u8]),
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// At a packet boundary, or with a partial fixed header held.
    #[default]
    Header,
    /// Holding a packet until it is complete.
    Body(FixedHeader),
    /// Inside a streamed packet, with this many bytes to come. Never 0.
    Stream(usize),
    /// Behind the first byte of a packet that breaks the rules, in its length.
    Length(Length),
    Raw,
}

/// Cuts one direction of one connection.
#[derive(Debug, Default)]
pub struct Framer {
    state: State,
    /// At most one partial packet, or the one that was just delivered.
    held: Vec<u8>,
    /// The held bytes were delivered by the last call.
    is_delivered: bool,
    /// What breaks the rules passes, and what comes behind it is looked at.
    goes_on: bool,
}

impl Framer {
    /// A framer at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece off `input`; `None` once the input is used up. `handling` is asked once a packet.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
        handling: impl FnOnce(&FixedHeader) -> Handling,
    ) -> Option<Piece<'s>> {
        self.forget_delivered();
        match self.state {
            State::Raw => {
                let bytes = take(input, usize::MAX);
                (!bytes.is_empty()).then_some(Piece::Raw(bytes))
            }
            State::Stream(left) => self.next_part(input, left),
            State::Length(length) => self.next_length(input, length),
            State::Body(header) => self.next_body(input, header),
            State::Header if input.is_empty() => None,
            State::Header if self.held.is_empty() => self.next_borrowed(input, handling),
            State::Header => self.next_split(input, handling),
        }
    }

    /// Goes on behind what breaks the rules, now and from now on: a packet that was refused comes as parts, and so does every further
    /// one without a valid fixed header. Where it cannot be told where such a packet ends, the rest of the stream is raw. A framer that has
    /// given up stays so.
    pub fn go_on(&mut self) {
        self.goes_on = true;
        // What was delivered with the refusal begins the packet that was refused.
        if matches!(self.state, State::Raw) && self.is_delivered {
            self.state = broken::behind(&self.held);
        }
    }

    /// Stops looking at the stream and returns what was held, to be passed on first.
    pub fn give_up(&mut self) -> Vec<u8> {
        self.forget_delivered();
        self.state = State::Raw;
        std::mem::take(&mut self.held)
    }

    /// Whether the next byte begins a packet.
    pub fn is_at_boundary(&self) -> bool {
        matches!(self.state, State::Header) && (self.held.is_empty() || self.is_delivered)
    }

    fn forget_delivered(&mut self) {
        if self.is_delivered {
            self.is_delivered = false;
            self.held.clear();
            self.held.shrink_to(HELD_CAPACITY_KEPT_BYTES);
        }
    }

    fn next_part<'i>(&mut self, input: &mut &'i [u8], left: usize) -> Option<Piece<'i>> {
        let bytes = take(input, left);
        if bytes.is_empty() {
            return None;
        }
        let is_last = self.stream(left - bytes.len());
        Some(Piece::Part { bytes, is_last })
    }

    /// Nothing is held: a packet that is here whole is borrowed.
    fn next_borrowed<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
        handling: impl FnOnce(&FixedHeader) -> Handling,
    ) -> Option<Piece<'s>> {
        let header = match FixedHeader::parse(input) {
            Ok(Some(header)) => header,
            Ok(None) => {
                self.held.extend_from_slice(take(input, usize::MAX));
                return None;
            }
            Err(error) => {
                self.held.extend_from_slice(take(input, 1));
                return Some(self.break_rules(error));
            }
        };
        let total = header.packet_bytes();
        match handling(&header) {
            Handling::Whole if input.len() >= total => {
                Some(Piece::Packet { header, bytes: take(input, total) })
            }
            Handling::Whole => {
                self.held.extend_from_slice(take(input, total));
                self.state = State::Body(header);
                None
            }
            Handling::Stream => {
                let bytes = take(input, total);
                let is_last = self.stream(total - bytes.len());
                Some(Piece::Start { header, bytes, is_last })
            }
            Handling::Refuse(error) => {
                self.held.extend_from_slice(take(input, 1));
                Some(self.refuse(error))
            }
        }
    }

    /// A partial fixed header is held: complete it byte by byte, at most four times.
    fn next_split<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
        handling: impl FnOnce(&FixedHeader) -> Handling,
    ) -> Option<Piece<'s>> {
        let header = loop {
            let [byte] = take(input, 1) else { return None };
            self.held.push(*byte);
            match FixedHeader::parse(&self.held) {
                Ok(Some(header)) => break header,
                Ok(None) => {}
                Err(error) => return Some(self.break_rules(error)),
            }
        };
        match handling(&header) {
            Handling::Whole => {
                self.state = State::Body(header);
                self.next_body(input, header)
            }
            Handling::Stream => {
                let is_last = self.stream(header.remaining_bytes);
                self.is_delivered = true;
                Some(Piece::Start { header, bytes: &self.held, is_last })
            }
            Handling::Refuse(error) => Some(self.refuse(error)),
        }
    }

    fn next_body(&mut self, input: &mut &[u8], header: FixedHeader) -> Option<Piece<'_>> {
        let missing = header.packet_bytes() - self.held.len();
        let bytes = take(input, missing);
        self.held.extend_from_slice(bytes);
        if bytes.len() < missing {
            return None;
        }
        self.state = State::Header;
        self.is_delivered = true;
        Some(Piece::Packet { header, bytes: &self.held })
    }

    fn next_length<'i>(&mut self, input: &mut &'i [u8], length: Length) -> Option<Piece<'i>> {
        let (used, state) = length.read(input);
        self.state = state;
        let bytes = take(input, used);
        let is_last = matches!(state, State::Header);
        (!bytes.is_empty()).then_some(Piece::Part { bytes, is_last })
    }

    /// What is held begins a packet without a valid fixed header.
    fn break_rules(&mut self, error: Malformed) -> Piece<'_> {
        if !self.goes_on {
            return self.refuse(error);
        }
        self.state = broken::behind(&self.held);
        self.is_delivered = true;
        Piece::Part { bytes: &self.held, is_last: matches!(self.state, State::Header) }
    }

    /// Notes how much of a streamed packet is still to come; whether that is nothing.
    fn stream(&mut self, left: usize) -> bool {
        self.state = if left == 0 { State::Header } else { State::Stream(left) };
        left == 0
    }

    fn refuse(&mut self, error: Malformed) -> Piece<'_> {
        self.state = State::Raw;
        self.is_delivered = true;
        Piece::Malformed { held: &self.held, error }
    }
}

/// Takes up to `n` bytes off the front.
fn take<'i>(input: &mut &'i [u8], n: usize) -> &'i [u8] {
    let (front, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    front
}

#[cfg(test)]
mod tests;
