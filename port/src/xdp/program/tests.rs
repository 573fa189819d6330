//! The program, run by an interpreter of the instructions it uses.

use super::*;

const MAP: i32 = 77;

#[derive(Debug, Eq, PartialEq)]
enum Whose {
    Card,
    Kernel,
}

/// Runs `code` on a frame. Registers hold numbers, and places in the frame as numbers from [`BASE`] on.
fn run(code: &[Instruction], frame: &[u8]) -> Whose {
    const BASE: u64 = 1 << 20;
    const QUEUE: u64 = 3;
    let end = BASE + frame.len() as u64;
    let mut registers = [0_u64; 11];
    let mut at = 0;
    loop {
        let it = code[at];
        at += 1;
        let (to, from) = (usize::from(it.registers & 15), usize::from(it.registers >> 4));
        let (target, source) = (registers[to], registers[from]);
        let value = it.immediate as i64 as u64;
        let load = |bytes: usize| {
            let start = (source + it.offset as u64 - BASE) as usize;
            let mut word = [0; 8];
            // Panics where the kernel's own check would refuse the program.
            word[..bytes].copy_from_slice(&frame[start..start + bytes]);
            u64::from_ne_bytes(word)
        };
        let mut is_taken = false;
        match it.code {
            LOAD_WORD if from == usize::from(CONTEXT) => {
                registers[to] = match it.offset {
                    CONTEXT_DATA => BASE,
                    CONTEXT_END => end,
                    _ => QUEUE,
                };
            }
            LOAD_BYTE => registers[to] = load(1),
            LOAD_HALF => registers[to] = load(2),
            LOAD_WORD => registers[to] = load(4),
            LOAD_DOUBLE => registers[to] = load(8),
            LOAD_IMMEDIATE => {
                let high = u64::from(code[at].immediate as u32);
                registers[to] = u64::from(it.immediate as u32) | high << 32;
                at += 1;
            }
            ADD => registers[to] = target + value,
            AND => registers[to] = target & value,
            MOVE => registers[to] = value,
            MOVE_REGISTER => registers[to] = source,
            JUMP => is_taken = true,
            JUMP_EQUAL => is_taken = target == value,
            JUMP_NOT_EQUAL => is_taken = target != value,
            JUMP_EQUAL_REGISTER => is_taken = target == source,
            JUMP_NOT_EQUAL_REGISTER => is_taken = target != source,
            JUMP_GREATER_REGISTER => is_taken = target > source,
            JUMP_EQUAL_WORD => is_taken = target as u32 == it.immediate as u32,
            CALL => {
                let asked = (registers[1], registers[2], registers[3]);
                assert_eq!(asked, (MAP as u64, QUEUE, PASS as u64));
                return Whose::Card;
            }
            EXIT => {
                assert_eq!(registers[0], PASS as u64);
                return Whose::Kernel;
            }
            other => panic!("no instruction of ours: {other:#x}"),
        }
        if is_taken {
            at = at.checked_add_signed(isize::from(it.offset)).unwrap();
        }
    }
}

fn filter(vlan: Option<u16>) -> Filter {
    let addresses = ["10.0.0.1", "fd00::1", "192.168.7.200", "2001:db8::ffff:1"];
    Filter { addresses: addresses.map(|text| text.parse().unwrap()).to_vec(), vlan }
}

fn whose(frame: &[u8]) -> Whose {
    run(&assemble(&filter(None), MAP), frame)
}

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    packet[9] = protocol;
    packet[16..20].copy_from_slice(&to);
    ethernet(TYPE_IPV4, &packet)
}

fn ipv6(protocol: u8, to: &str) -> Vec<u8> {
    let mut packet = vec![0; 80];
    packet[0] = 0x60;
    packet[6] = protocol;
    packet[24..40].copy_from_slice(&to.parse::<Ipv6Addr>().unwrap().octets());
    ethernet(TYPE_IPV6, &packet)
}

fn solicitation(to: &str, target: &str) -> Vec<u8> {
    let mut frame = ipv6(58, to);
    frame[54] = 135;
    frame[62..78].copy_from_slice(&target.parse::<Ipv6Addr>().unwrap().octets());
    frame
}

fn arp(target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[24..].copy_from_slice(&target);
    ethernet(TYPE_ARP, &packet)
}

#[test]
fn tcp_and_icmp_to_our_addresses_are_the_card_s() {
    for (protocol, to) in [(6, [10, 0, 0, 1]), (1, [10, 0, 0, 1]), (6, [192, 168, 7, 200])] {
        assert_eq!(whose(&ipv4(protocol, to)), Whose::Card);
    }
    for (protocol, to) in [(6, "fd00::1"), (58, "fd00::1"), (6, "2001:db8::ffff:1")] {
        assert_eq!(whose(&ipv6(protocol, to)), Whose::Card);
    }
}

#[test]
fn other_addresses_and_other_protocols_are_the_kernel_s() {
    for (protocol, to) in [(6, [10, 0, 0, 2]), (1, [10, 0, 0, 2]), (17, [10, 0, 0, 1])] {
        assert_eq!(whose(&ipv4(protocol, to)), Whose::Kernel);
    }
    for (protocol, to) in
        [(6, "fd00::2"), (6, "fd00::1:0:0:1"), (17, "fd00::1"), (0, "fd00::1"), (6, "fd01::1")]
    {
        assert_eq!(whose(&ipv6(protocol, to)), Whose::Kernel, "{to}");
    }
    assert_eq!(whose(&ethernet(0x88cc, &[0; 60])), Whose::Kernel);
}

#[test]
fn who_asks_for_our_addresses_asks_the_card() {
    assert_eq!(whose(&arp([10, 0, 0, 1])), Whose::Card);
    assert_eq!(whose(&arp([10, 0, 0, 3])), Whose::Kernel);
    // Two addresses of one group: the target tells.
    assert_eq!(whose(&solicitation("ff02::1:ff00:1", "fd00::1")), Whose::Card);
    assert_eq!(whose(&solicitation("ff02::1:ff00:1", "fe80::1")), Whose::Kernel);
    assert_eq!(whose(&solicitation("fd00::1", "fd00::1")), Whose::Card);
}

#[test]
fn a_frame_that_is_cut_anywhere_is_read_no_further_than_it_goes() {
    let code = assemble(&filter(Some(5)), MAP);
    let whole = [ipv4(6, [10, 0, 0, 1]), solicitation("fd00::1", "fd00::1"), arp([10, 0, 0, 1])];
    for frame in whole {
        for length in 0..frame.len() {
            whose(&frame[..length]);
            run(&code, &tagged(5, &frame)[..length]);
        }
    }
}

fn tagged(tag: u16, frame: &[u8]) -> Vec<u8> {
    let mut it = frame[..12].to_vec();
    it.extend(TYPE_VLAN.to_be_bytes());
    it.extend(tag.to_be_bytes());
    it.extend(&frame[12..]);
    it
}

#[test]
fn a_vlan_is_ours_or_the_kernel_s_whatever_its_priority() {
    let frames = [ipv4(6, [10, 0, 0, 1]), ipv6(6, "fd00::1"), arp([10, 0, 0, 1])];
    let code = assemble(&filter(Some(5)), MAP);
    for frame in frames {
        assert_eq!(whose(&tagged(5, &frame)), Whose::Kernel);
        assert_eq!(run(&code, &tagged(5, &frame)), Whose::Card);
        assert_eq!(run(&code, &tagged(0xe005, &frame)), Whose::Card);
        assert_eq!(run(&code, &tagged(6, &frame)), Whose::Kernel);
        assert_eq!(run(&code, &frame), Whose::Kernel);
    }
}
