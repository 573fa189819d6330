//! `libmqttshim.so`: preloaded into an unmodified program, it moves the program's listening sockets to the card.
//!
//! ```text
//! program ── libc call ──► hooks ──► sockets ──► mqttshim_session ──► agent ──► card
//!                │           │          │
//!                │           │          └ verdict (rules, environment), options, records of what is on the card
//!                │           └ table: what each descriptor is · guard: re-entrancy and panics · wait: in the kernel
//!                └ not ours: the real function, same arguments
//! ```
//!
//! A socket starts as the kernel's own. The verdict falls at bind, listen or connect; an offloaded socket's descriptor then
//! becomes a *placeholder*, one end of a local socket whose other end the agent holds, so that epoll, poll, blocking waits,
//! dup, fork and exec stay the kernel's business. No thread of ours runs in the program. `hooks` holds nearly all unsafe code
//! and decides nothing; `sockets` decides and sees no pointer.
//!
//! **What is not carried.** Urgent data (`MSG_OOB`: EOPNOTSUPP on send, EINVAL on receive). `SO_RCVLOWAT` is kept and does not delay
//! readiness. A descriptor used by io_uring, by system calls that go past libc, or by standard streams below which it was put, sees the placeholder, not the
//! stream. Options that carry addresses (`SO_ATTACH_FILTER`, …) are ENOPROTOOPT.
//!
//! **Bounds.** 1,048,576 descriptors, 15 sessions with open sockets, 256 epoll registrations of undecided sockets, 1,024
//! rules. A data call: one atomic load for a socket of the kernel; no allocation and under 1 KiB of stack for one of ours.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "reads and writes C socket addresses")]
mod address;
#[allow(unsafe_code, reason = "an entry in .init_array")]
mod constructor;
#[allow(unsafe_code, reason = "borrows the program's descriptors")]
mod descriptor;
mod descriptors;
mod environment;
mod epoll;
#[allow(unsafe_code, reason = "errno is a C variable")]
mod errno;
#[allow(unsafe_code, reason = "pthread_atfork, and a page the kernel wipes")]
mod fork;
mod guard;
#[allow(unsafe_code, reason = "the C boundary")]
mod hooks;
mod inherit;
#[allow(unsafe_code, reason = "system calls without libc")]
mod kernel;
#[allow(unsafe_code, reason = "a lock is made of it")]
mod lock;
mod log;
mod options;
mod outcome;
mod outside;
mod placeholder;
#[allow(unsafe_code, reason = "asks the loader what is loaded")]
mod plugins;
mod policy;
#[allow(unsafe_code, reason = "calls libc's functions by address")]
mod real;
mod registrations;
mod rules;
#[allow(unsafe_code, reason = "sessions live behind atomic pointers")]
mod sessions;
mod sockets;
mod spare;
mod state;
#[allow(unsafe_code, reason = "stdio's streams are C structures")]
mod stream;
mod table;
mod trace;
#[allow(unsafe_code, reason = "settings live behind an atomic pointer")]
mod verdict;
#[allow(unsafe_code, reason = "calls libc's poll, recv and sigaction")]
mod wait;
mod watches;
