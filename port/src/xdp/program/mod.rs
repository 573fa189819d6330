//! The program that runs for each received frame: what is the card's goes to its sockets, all else to the kernel's own stack.
//!
//! | frame | whose |
//! |---|---|
//! | ARP (RFC 826) about one of our IPv4 addresses | the card's |
//! | IPv4 to one of our addresses: TCP, ICMP | the card's |
//! | IPv6 to one of our addresses: TCP, ICMPv6 | the card's |
//! | neighbour solicitation (RFC 4861 §4.3) for one of our addresses, to whichever group | the card's |
//! | with another VLAN tag than ours, or with one where we have none, or without one where we have one | the kernel's |
//! | anything else, UDP and IPv6 with extension headers among it | the kernel's |
//!
//! It is assembled here, for the addresses at hand: there is nothing to look up while it runs, and no compiler to have.
//! Source of the encoding: Documentation/bpf/standardization/instruction-set.rst.

use std::net::{IpAddr, Ipv6Addr};

use crate::sys::bpf::Instruction;

/// What is ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Filter {
    pub(super) addresses: Vec<IpAddr>,
    /// The VLAN whose tag our frames carry (IEEE 802.1Q).
    pub(super) vlan: Option<u16>,
}

// Registers: the answer, five for whatever is at hand, and three that keep.
const ANSWER: u8 = 0;
const ONE: u8 = 1;
const TWO: u8 = 2;
const THREE: u8 = 3;
const FOUR: u8 = 4;
const FIVE: u8 = 5;
/// `struct xdp_md`.
const CONTEXT: u8 = 6;
/// The Ethernet header, or what is a tag further on.
const FRAME: u8 = 7;
const END: u8 = 8;

// Operations.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_DOUBLE: u8 = 0x79;
const LOAD_IMMEDIATE: u8 = 0x18;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_NOT_EQUAL_REGISTER: u8 = 0x5d;
const JUMP_EQUAL_REGISTER: u8 = 0x1d;
const JUMP_GREATER_REGISTER: u8 = 0x2d;
/// Compares 32 bits.
const JUMP_EQUAL_WORD: u8 = 0x16;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `XDP_PASS`: to the kernel's own stack.
const PASS: i32 = 2;
/// The helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// A map's descriptor as an immediate (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;

// `struct xdp_md` (linux/bpf.h).
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

// Places in a frame, from FRAME.
const TYPE: i16 = 12;
const TAG: i16 = 14;
const TAG_BYTES: i32 = 4;
const TAGGED_TYPE: i16 = 16;
const ARP_TARGET: i16 = 14 + 24;
const ARP_BYTES: i32 = 14 + 28;
const IPV4_PROTOCOL: i16 = 14 + 9;
const IPV4_TARGET: i16 = 14 + 16;
const IPV4_BYTES: i32 = 14 + 20;
const IPV6_PROTOCOL: i16 = 14 + 6;
const IPV6_TARGET: i16 = 14 + 24;
const IPV6_BYTES: i32 = 14 + 40;
const DISCOVERY_TYPE: i16 = 14 + 40;
const DISCOVERY_TARGET: i16 = 14 + 40 + 8;
const DISCOVERY_BYTES: i32 = 14 + 40 + 24;

const TYPE_ARP: u16 = 0x0806;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TCP: i32 = 6;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
const NEIGHBOR_SOLICITATION: i32 = 135;

/// Where a jump goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Label {
    Arp,
    Ipv4,
    Ipv4Target,
    Ipv4Compare,
    Ipv6,
    Ipv6Target,
    Ipv6Compare,
    Next(usize),
    Take,
    Pass,
}

/// The program for `filter`, sending to the sockets in the map of this descriptor.
pub(super) fn assemble(filter: &Filter, map: i32) -> Vec<Instruction> {
    let mut it = Assembler::default();
    it.moves(CONTEXT, ONE);
    it.load(LOAD_WORD, FRAME, CONTEXT, CONTEXT_DATA);
    it.load(LOAD_WORD, END, CONTEXT, CONTEXT_END);
    it.wants(14, Label::Pass);
    it.load(LOAD_HALF, THREE, FRAME, TYPE);
    if let Some(vlan) = filter.vlan {
        it.tag(vlan);
    }
    it.jump_if(THREE, as_loaded(TYPE_IPV4), Label::Ipv4);
    it.jump_if(THREE, as_loaded(TYPE_IPV6), Label::Ipv6);
    it.jump_if(THREE, as_loaded(TYPE_ARP), Label::Arp);
    it.jump(Label::Pass);
    it.ipv4(&filter.addresses);
    it.ipv6(&filter.addresses);
    it.here(Label::Take);
    it.load(LOAD_WORD, TWO, CONTEXT, CONTEXT_QUEUE);
    it.immediate(ONE, MAP_DESCRIPTOR, map as u32, 0);
    // Without a socket for the queue: as if there were no program.
    it.put(MOVE, THREE, 0, 0, PASS);
    it.put(CALL, 0, 0, 0, REDIRECT_MAP);
    it.put(EXIT, 0, 0, 0, 0);
    it.here(Label::Pass);
    it.put(MOVE, ANSWER, 0, 0, PASS);
    it.put(EXIT, 0, 0, 0, 0);
    it.finish()
}

/// Two bytes of a frame as a load leaves them in a register.
fn as_loaded(bytes: u16) -> i32 {
    i32::from(u16::from_ne_bytes(bytes.to_be_bytes()))
}

/// An IPv6 address as two loads leave it in two registers.
fn halves(address: Ipv6Addr) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = address.octets();
    [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]].map(u64::from_ne_bytes)
}

/// Instructions, and jumps whose ends are not known yet.
#[derive(Debug, Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    fn moves(&mut self, to: u8, from: u8) {
        self.put(MOVE_REGISTER, to, from, 0, 0);
    }

    fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.put(size, to, from, offset, 0);
    }

    /// A number of 64 bits, in two instructions' room.
    fn immediate(&mut self, to: u8, kind: u8, low: u32, high: u32) {
        self.put(LOAD_IMMEDIATE, to, kind, 0, low as i32);
        self.put(0, 0, 0, 0, high as i32);
    }

    fn here(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn jumps(&mut self, code: u8, to: u8, from: u8, immediate: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(code, to, from, 0, immediate);
    }

    fn jump(&mut self, label: Label) {
        self.jumps(JUMP, 0, 0, 0, label);
    }

    fn jump_if(&mut self, register: u8, value: i32, label: Label) {
        self.jumps(JUMP_EQUAL, register, 0, value, label);
    }

    /// Goes on only if the frame has as many bytes from FRAME on. The kernel lets nobody read before that was asked.
    fn wants(&mut self, bytes: i32, otherwise: Label) {
        self.moves(TWO, FRAME);
        self.put(ADD, TWO, 0, 0, bytes);
        self.jumps(JUMP_GREATER_REGISTER, TWO, END, 0, otherwise);
    }

    /// Steps over the tag of our VLAN; the type in THREE becomes that of what is behind it.
    fn tag(&mut self, vlan: u16) {
        self.jumps(JUMP_NOT_EQUAL, THREE, 0, as_loaded(TYPE_VLAN), Label::Pass);
        self.wants(14 + TAG_BYTES, Label::Pass);
        self.load(LOAD_HALF, FOUR, FRAME, TAG);
        // Without priority and drop eligibility.
        self.put(AND, FOUR, 0, 0, as_loaded(0x0fff));
        self.jumps(JUMP_NOT_EQUAL, FOUR, 0, as_loaded(vlan), Label::Pass);
        self.load(LOAD_HALF, THREE, FRAME, TAGGED_TYPE);
        self.put(ADD, FRAME, 0, 0, TAG_BYTES);
    }

    fn ipv4(&mut self, addresses: &[IpAddr]) {
        self.here(Label::Arp);
        self.wants(ARP_BYTES, Label::Pass);
        self.load(LOAD_WORD, THREE, FRAME, ARP_TARGET);
        self.jump(Label::Ipv4Compare);
        self.here(Label::Ipv4);
        self.wants(IPV4_BYTES, Label::Pass);
        self.load(LOAD_BYTE, THREE, FRAME, IPV4_PROTOCOL);
        self.jump_if(THREE, TCP, Label::Ipv4Target);
        self.jumps(JUMP_NOT_EQUAL, THREE, 0, ICMP, Label::Pass);
        self.here(Label::Ipv4Target);
        self.load(LOAD_WORD, THREE, FRAME, IPV4_TARGET);
        self.here(Label::Ipv4Compare);
        for address in addresses {
            if let IpAddr::V4(address) = address {
                let word = u32::from_ne_bytes(address.octets());
                self.jumps(JUMP_EQUAL_WORD, THREE, 0, word as i32, Label::Take);
            }
        }
        self.jump(Label::Pass);
    }

    fn ipv6(&mut self, addresses: &[IpAddr]) {
        self.here(Label::Ipv6);
        self.wants(IPV6_BYTES, Label::Pass);
        self.load(LOAD_BYTE, THREE, FRAME, IPV6_PROTOCOL);
        self.jump_if(THREE, TCP, Label::Ipv6Target);
        self.jumps(JUMP_NOT_EQUAL, THREE, 0, ICMPV6, Label::Pass);
        self.wants(DISCOVERY_BYTES, Label::Ipv6Target);
        self.load(LOAD_BYTE, THREE, FRAME, DISCOVERY_TYPE);
        self.jumps(JUMP_NOT_EQUAL, THREE, 0, NEIGHBOR_SOLICITATION, Label::Ipv6Target);
        self.load(LOAD_DOUBLE, THREE, FRAME, DISCOVERY_TARGET);
        self.load(LOAD_DOUBLE, FOUR, FRAME, DISCOVERY_TARGET + 8);
        self.jump(Label::Ipv6Compare);
        self.here(Label::Ipv6Target);
        self.load(LOAD_DOUBLE, THREE, FRAME, IPV6_TARGET);
        self.load(LOAD_DOUBLE, FOUR, FRAME, IPV6_TARGET + 8);
        self.here(Label::Ipv6Compare);
        for (number, address) in addresses.iter().enumerate() {
            if let IpAddr::V6(address) = address {
                let [first, second] = halves(*address);
                self.immediate(FIVE, 0, first as u32, (first >> 32) as u32);
                self.jumps(JUMP_NOT_EQUAL_REGISTER, THREE, FIVE, 0, Label::Next(number));
                self.immediate(FIVE, 0, second as u32, (second >> 32) as u32);
                self.jumps(JUMP_EQUAL_REGISTER, FOUR, FIVE, 0, Label::Take);
                self.here(Label::Next(number));
            }
        }
        self.jump(Label::Pass);
    }

    /// All jumps go forward, to labels there are.
    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.labels.iter().find(|(it, _)| *it == label);
            let (_, to) = place.expect("every label is put somewhere");
            self.code[at].offset = (to - at - 1) as i16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests;
