//! What lies where in the session's memory.
//!
//! ```text
//! Header │ slots × Slot │ send ring │ slots × receive ring
//! ```
//!
//! Everything outside the rings is an atomic, so that two processes may look at it at any moment. Both sides treat what they
//! read as foreign: it is copied to a local, checked, then used. Positions count bytes from the session's start and never
//! wrap; the place in a ring is the position modulo its size, a power of two.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::token::BYTE;

/// "MQTTSHIM" in ASCII.
pub(crate) const MAGIC: u64 = 0x4d49_4853_5454_514d;
/// The newest layout this build knows, and the oldest it still accepts. 2 adds the ready list and its bell, in words that 1
/// leaves unused; 3 adds options that are told in the send ring; 4 the policy epoch, in another unused word, and notices of
/// loaded libraries.
pub const LAYOUT_MAX: u16 = 4;
/// See [`LAYOUT_MAX`].
pub const LAYOUT_MIN: u16 = 1;
/// The first layout whose agents take options from the send ring.
pub(crate) const LAYOUT_WITH_OPTIONS: u16 = 3;
/// The first layout whose programs count what may change their policy.
pub(crate) const LAYOUT_WITH_POLICY: u16 = 4;
/// Bytes of one socket's receive ring: what may be under way towards the program.
pub const RX_BYTES: usize = 64 * 1024;
/// Bytes of the session's send ring.
pub const TX_BYTES: usize = 2 * 1024 * 1024;
/// The part of the send ring that data never takes, so that announcements always fit.
pub(crate) const TX_RESERVE_BYTES: usize = TX_BYTES / 2;
/// Most sockets a session may be made for.
pub const SOCKETS_MAX: u32 = 1 << 20;

/// The first page.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) layout: AtomicU32,
    pub(crate) slots: AtomicU32,
    /// Bytes a socket may send before the card grants more.
    pub(crate) tx_window: AtomicU64,
    /// Agent: the session is over; every socket reports ECONNRESET.
    pub(crate) ended: AtomicU32,
    /// Agent: it is about to sleep; whoever swaps this to 0 rings the doorbell.
    pub(crate) asleep: AtomicU32,
    /// Program: nothing the card stamped later than this has been read.
    pub(crate) read: AtomicU64,
    pub(crate) tx_lock: PaddedU32,
    pub(crate) tx_head: PaddedU64,
    pub(crate) tx_tail: PaddedU64,
    /// The ready list: slots with data that was announced here and not on the wire, newest first, as index + 1; 0 ends it.
    pub(crate) ready: PaddedU32,
    /// Program: a thread is about to sleep; whoever swaps this to 0 rings the bell.
    pub(crate) dozing: PaddedU32,
    /// Program: how often what it permits may have changed, as far as it can be seen: the policy epoch.
    pub(crate) policy: PaddedU64,
}

/// A word on its own cache line, because two sides write its neighbours.
#[repr(C, align(64))]
pub(crate) struct PaddedU64(pub(crate) AtomicU64);
/// See [`PaddedU64`].
#[repr(C, align(64))]
pub(crate) struct PaddedU32(pub(crate) AtomicU32);

/// What a slot holds now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum State {
    /// Nothing, or another socket than the one asked for.
    Gone = 0,
    /// A bound socket.
    Bound = 1,
    /// A listener; its receive ring carries accepted slots.
    Listening = 2,
    /// A connection being made by the program.
    Connecting = 3,
    /// A connection.
    Connected = 4,
}

impl State {
    fn from_word(word: u32) -> State {
        match word {
            1 => State::Bound,
            2 => State::Listening,
            3 => State::Connecting,
            4 => State::Connected,
            _ => State::Gone,
        }
    }
}

/// Where a listener's connections have their time-outs from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Inheritance {
    /// They have none.
    Nothing = 0,
    /// The listener, which has had the same ones since it began to listen.
    Listener = 1,
    /// The card's own end of each, because the listener's were changed while clients may have been waiting.
    Card = 2,
}

impl Inheritance {
    pub(crate) fn from_word(word: u32) -> Inheritance {
        match word {
            0 => Inheritance::Nothing,
            1 => Inheritance::Listener,
            _ => Inheritance::Card,
        }
    }
}

/// News of a socket comes as a byte on its wire.
pub(crate) const WIRE: u32 = 0;
/// News comes on the ready list, and no byte on the wire.
pub(crate) const LISTED: u32 = 1;
/// News comes on the wire for good: processes hold the socket that do not see the list.
pub(crate) const WIRE_FOR_GOOD: u32 = 2;

/// One socket. A cache line a writer: first what rarely changes, then the agent's, then the program's words.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) generation: AtomicU32,
    state: AtomicU32,
    /// The program's readers take turns.
    pub(crate) lock: AtomicU32,
    /// Descriptors of the program that name this socket.
    pub(crate) refs: AtomicU32,
    /// An errno the program has yet to be told.
    pub(crate) error: AtomicU32,
    /// Program: it watches for edges; every arrival must be a byte.
    pub(crate) edge: AtomicU32,
    /// Program: where it wants news, as [`WIRE`] and its neighbours say.
    pub(crate) listed: AtomicU32,
    /// Program: a panic poisoned the socket.
    pub(crate) poisoned: AtomicU32,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    pub(crate) agent: AgentWords,
    pub(crate) program: ProgramWords,
}

/// Written by the agent, apart from the flags both sides swap.
#[repr(C, align(64))]
pub(crate) struct AgentWords {
    pub(crate) rx_head: AtomicU64,
    /// The card's stamp of the newest bytes in the ring.
    pub(crate) rx_stamp: AtomicU64,
    /// Bytes the program may have sent, from the connection's start.
    pub(crate) tx_limit: AtomicU64,
    pub(crate) rx_armed: AtomicU32,
    pub(crate) rx_extra: AtomicU32,
    pub(crate) rx_eof: AtomicU32,
    /// The agent wants to hear when the ring is half empty.
    pub(crate) rx_notify: AtomicU32,
    /// The next on the ready list, as index + 1; 0 ends it.
    pub(crate) ready_next: AtomicU32,
    /// It is on the list. Set by the agent, cleared by the program that takes it off.
    pub(crate) ready_on: AtomicU32,
}

/// Written by the program, apart from the flags both sides swap.
#[repr(C, align(64))]
pub(crate) struct ProgramWords {
    pub(crate) rx_tail: AtomicU64,
    pub(crate) tx_sent: AtomicU64,
    pub(crate) rx_debt: AtomicU32,
    pub(crate) rx_shut: AtomicU32,
    pub(crate) tx_blocked: AtomicU32,
    pub(crate) tx_shut: AtomicU32,
    /// How the latest arming asked to be announced.
    pub(crate) rx_asked: AtomicU32,
    /// The inode of the socket's placeholder; 0 while there is none.
    pub(crate) file: AtomicU32,
    /// Of a listener, as [`Inheritance`] says. The agent does not look.
    pub(crate) inheritance: AtomicU32,
}

impl Slot {
    pub(crate) fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Makes the slot ready for a new socket: everything empty, the receive token armed, one descriptor.
    pub(crate) fn reset(&self, generation: u32, tx_window: u64) {
        self.set_state(State::Gone);
        self.generation.store(generation, Ordering::SeqCst);
        for word in [&self.lock, &self.error, &self.edge, &self.listed, &self.poisoned] {
            word.store(0, Ordering::Relaxed);
        }
        self.refs.store(1, Ordering::Relaxed);
        self.local.clear();
        self.peer.clear();
        let agent = &self.agent;
        for word in [&agent.rx_head, &agent.rx_stamp] {
            word.store(0, Ordering::Relaxed);
        }
        agent.tx_limit.store(tx_window, Ordering::Relaxed);
        for word in [&agent.rx_extra, &agent.rx_eof, &agent.rx_notify] {
            word.store(0, Ordering::Relaxed);
        }
        let program = &self.program;
        program.rx_tail.store(0, Ordering::Relaxed);
        program.tx_sent.store(0, Ordering::Relaxed);
        for word in [&program.rx_debt, &program.rx_shut, &program.tx_blocked, &program.tx_shut] {
            word.store(0, Ordering::Relaxed);
        }
        program.rx_asked.store(BYTE, Ordering::Relaxed);
        program.file.store(0, Ordering::Relaxed);
        program.inheritance.store(Inheritance::Nothing as u32, Ordering::Relaxed);
        // On the ready list it stays: whoever takes it off finds nothing to read.
        agent.rx_armed.store(BYTE, Ordering::SeqCst);
    }
}

/// A socket address in four words. Written before the state that makes it visible.
#[repr(C)]
pub(crate) struct Address {
    /// Family 0, 4 or 6 in the low byte, then the port (16 bits), then the scope id (32 bits).
    meta: AtomicU64,
    flow: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

impl Address {
    fn clear(&self) {
        self.meta.store(0, Ordering::Relaxed);
    }

    pub(crate) fn store(&self, address: SocketAddr) {
        let (family, scope, flow, bits) = match address {
            SocketAddr::V4(v4) => (4_u64, 0, 0, u128::from(v4.ip().to_bits())),
            SocketAddr::V6(v6) => (6, v6.scope_id(), v6.flowinfo(), v6.ip().to_bits()),
        };
        self.flow.store(u64::from(flow), Ordering::Relaxed);
        self.high.store((bits >> 64) as u64, Ordering::Relaxed);
        self.low.store(bits as u64, Ordering::Relaxed);
        let meta = family | u64::from(address.port()) << 8 | u64::from(scope) << 32;
        self.meta.store(meta, Ordering::Release);
    }

    pub(crate) fn load(&self) -> Option<SocketAddr> {
        let meta = self.meta.load(Ordering::Acquire);
        let (high, low) = (self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed));
        let port = (meta >> 8 & 0xffff) as u16;
        match meta & 0xff {
            4 => Some(SocketAddrV4::new(Ipv4Addr::from_bits(low as u32), port).into()),
            6 => {
                let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
                let flow = self.flow.load(Ordering::Relaxed) as u32;
                Some(SocketAddrV6::new(ip, port, flow, (meta >> 32) as u32).into())
            }
            _ => None,
        }
    }
}

/// Where each part starts, for a session of `slots` sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offsets {
    pub(crate) slots: usize,
    pub(crate) tx: usize,
    pub(crate) rx: usize,
    pub(crate) total: usize,
}

/// Parts start on pages, so that an idle ring can give its pages back.
const PAGE: usize = 4096;

impl Offsets {
    /// `None` when `slots` is 0, more than [`SOCKETS_MAX`], or does not fit the address space.
    pub(crate) fn of(slots: u32) -> Option<Offsets> {
        if slots == 0 || slots > SOCKETS_MAX {
            return None;
        }
        let slots = slots as usize;
        let table = PAGE;
        let tx = (table + slots.checked_mul(size_of::<Slot>())?).next_multiple_of(PAGE);
        let rx = tx.checked_add(TX_BYTES)?;
        let total = rx.checked_add(slots.checked_mul(RX_BYTES)?)?;
        Some(Offsets { slots: table, tx, rx, total })
    }
}

const _: () = assert!(size_of::<Header>() <= PAGE);
// Where layout 3 ends.
const _: () = assert!(std::mem::offset_of!(Header, policy) == 384);
// Where layout 1 has them.
const _: () = assert!(std::mem::offset_of!(Slot, local) == 32 && size_of::<Slot>() == 256);
const _: () = assert!(RX_BYTES.is_power_of_two() && TX_BYTES.is_power_of_two());
const _: () = assert!(RX_BYTES.is_multiple_of(PAGE));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was_stored() {
        let words = Address {
            meta: AtomicU64::new(0),
            flow: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
        };
        assert_eq!(words.load(), None);
        let v6 = SocketAddrV6::new("fe80::1:2".parse().unwrap(), 65535, 0xabcde, 7);
        for address in ["203.0.113.9:1883".parse().unwrap(), v6.into(), "[::1]:0".parse().unwrap()]
        {
            words.store(address);
            assert_eq!(words.load(), Some(address));
        }
    }

    #[test]
    fn offsets_refuse_no_sockets_and_too_many() {
        assert_eq!(Offsets::of(0), None);
        assert_eq!(Offsets::of(SOCKETS_MAX + 1), None);
        let largest = Offsets::of(SOCKETS_MAX).unwrap();
        assert!(largest.total > largest.rx);
        assert_eq!(Offsets::of(1).unwrap().rx % PAGE, 0);
    }
}
