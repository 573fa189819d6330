//! A session whose memory somebody else wrote to: whatever the words say, every call returns, and returns what its contract allows.
//!
//! A call that goes on for ever is ended by the runner of the tests.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use mqttshim_schema::{How, Message};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Accept, Read, Session, SlotId, Write};
use crate::frame::{self, FRAME_BYTES_MAX};
use crate::host::Host;
use crate::layout::{RX_BYTES, State};
use crate::memory::Memory;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// SplitMix64: the same garbage in every run.
struct Garbage(u64);

impl Garbage {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Mostly what means something: small numbers, the largest, a flag that is neither 0 nor 1.
    fn word(&mut self) -> u64 {
        let any = self.draw();
        match self.draw() % 8 {
            0 | 1 => any % 3,
            2 => u64::MAX,
            3 => any % (2 * RX_BYTES as u64),
            4 => 1 << (any % 64),
            _ => any,
        }
    }

    /// Leaves about half of them as they are.
    fn ruin(&mut self, words: &[&AtomicU32], long: &[&AtomicU64]) {
        for word in words {
            if self.draw().is_multiple_of(2) {
                word.store(self.word() as u32, Ordering::SeqCst);
            }
        }
        for word in long {
            if self.draw().is_multiple_of(2) {
                word.store(self.word(), Ordering::SeqCst);
            }
        }
    }
}

/// A program's end of `host`'s session, opened as a program does it.
fn open(host: &Host) -> (Session, OwnedFd) {
    let folder = std::env::temp_dir().join(format!("mqttshim-ruined-{}", std::process::id()));
    let kind = SocketType::SEQPACKET;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&folder).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let opened = std::thread::scope(|scope| {
        let program = scope.spawn(|| Session::open(&folder, "ruined", 3).unwrap());
        let control = rustix::net::accept(&socket).unwrap();
        let mut bytes = vec![0; FRAME_BYTES_MAX];
        let length = frame::receive(&control, &mut bytes, RecvFlags::empty()).unwrap().length;
        assert!(matches!(mqttshim_schema::decode(&bytes[..length]), Ok(Message::Hello(_))));
        frame::send(&control, &bytes[..length], &host.fds(), SendFlags::empty()).unwrap();
        (program.join().unwrap(), control)
    });
    std::fs::remove_file(&folder).unwrap();
    opened
}

fn ruin_slot(garbage: &mut Garbage, memory: &Memory, slot: SlotId) {
    let words = memory.slot(slot.index).unwrap();
    let (agent, program) = (&words.agent, &words.program);
    garbage.ruin(
        &[
            &words.refs,
            &words.error,
            &words.edge,
            &agent.rx_armed,
            &agent.rx_extra,
            &agent.rx_eof,
            &agent.rx_notify,
            &program.rx_debt,
            &program.rx_shut,
            &program.tx_blocked,
            &program.tx_shut,
        ],
        &[&agent.rx_head, &agent.rx_stamp, &agent.tx_limit, &program.rx_tail, &program.tx_sent],
    );
    // No thread has such an id: 2²² is the most a kernel gives.
    words.lock.store((garbage.draw() as u32) | 1 << 30, Ordering::SeqCst);
}

#[test]
fn every_call_on_a_ruined_session_returns() {
    let mut host = Host::create(100, 100_000).unwrap();
    let (session, _control) = open(&host);
    let (placeholder, _wire) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut garbage = Garbage(1);
    let mut bytes = vec![0; 2 * RX_BYTES];
    for round in 0..20_000 {
        let state = if round % 2 == 0 { State::Connected } else { State::Listening };
        let slot = host.allocate(state).unwrap();
        ruin_slot(&mut garbage, &session.memory, slot);
        let header = session.memory.header();
        garbage.ruin(
            &[&header.ended, &header.asleep],
            &[&header.read, &header.tx_window, &header.tx_head.0, &header.tx_tail.0],
        );
        header.tx_lock.0.store((garbage.draw() as u32) | 1 << 30, Ordering::SeqCst);
        let fd = placeholder.as_fd();
        for peek in [true, false] {
            let read = session.read(slot, fd, &mut [IoSliceMut::new(&mut bytes)], peek);
            assert!(!matches!(read, Read::Bytes(length) if length > RX_BYTES), "{read:?}");
        }
        let written = session.write(slot, fd, &[IoSlice::new(&bytes[..1000])]);
        assert!(!matches!(written, Write::Bytes(length) if length > 1000), "{written:?}");
        if let Accept::Connection(taken) = session.accept(slot, fd) {
            assert!(session.memory.slot(taken.index).is_some());
        }
        assert!(session.readable_bytes(slot) <= RX_BYTES);
        let _ = (session.unsent_bytes(slot), session.take_error(slot, fd));
        let _ = (session.local(slot), session.peer(slot), session.shutdown(slot, How::Both));
        session.close(slot);
        host.release(slot);
    }
}
