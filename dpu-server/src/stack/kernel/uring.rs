//! One system call for a whole batch: io_uring.
//!
//! ```text
//! Batch ──► submission queue ──io_uring_enter──► the kernel sends each part at once ──► completion queue ──► Sent
//! ```
//!
//! Every send carries MSG_DONTWAIT, which makes it complete, or fail with `EAGAIN`, while it is submitted
//! (io_uring_enter(2), `REQ_F_NOWAIT`): nothing outlives the call, so borrowed bytes suffice. Where the ring cannot be had
//! (`ENOSYS`, `EPERM` by seccomp or by the sysctl `kernel.io_uring_disabled`) the stack sends by plain calls.
//!
//! Bounds: [`ENTRIES`] parts a submission, larger batches take several.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::plain;
use super::sockets::Sockets;
use crate::stack::{Batch, Key, Sent};

/// Parts of one submission.
const ENTRIES: u32 = 1024;
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The kernel, a sysctl or a filter said no.
    #[error("io_uring_setup: {0}")]
    Setup(#[source] io::Error),
    /// The kernel's io_uring is older than its sends.
    #[error("this kernel's io_uring cannot send")]
    TooOld,
}

/// A ring, and what its entries point to while a submission is under way.
pub struct Uring {
    ring: IoUring,
    /// One for each entry that has more than one slice. Never grows beyond its capacity.
    headers: Vec<libc::msghdr>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("entries", &self.ring.params().sq_entries()).finish()
    }
}

// SAFETY: the pointers in `headers` are written before and read within one call of `send`; between calls nobody follows
// them. The ring itself is `Send`.
unsafe impl Send for Uring {}

impl Uring {
    /// Sets a ring up and asks the kernel whether it can send.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn new() -> Result<Uring, Refused> {
        let ring = IoUring::builder()
            .setup_submit_all()
            .setup_coop_taskrun()
            .build(ENTRIES)
            // Kernels before 5.19 know neither flag.
            .or_else(|_| IoUring::new(ENTRIES))
            .map_err(Refused::Setup)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(Refused::Setup)?;
        if !probe.is_supported(opcode::Send::CODE) || !probe.is_supported(opcode::SendMsg::CODE) {
            return Err(Refused::TooOld);
        }
        Ok(Uring { ring, headers: Vec::with_capacity(ENTRIES as usize) })
    }

    /// Sends a batch; `sent` gets one outcome a part, in order.
    pub(super) fn send(&mut self, sockets: &Sockets, batch: &Batch<'_>, sent: &mut Vec<Sent>) {
        let mut first = 0;
        while first < batch.len() {
            let parts = (batch.len() - first).min(ENTRIES as usize);
            sent.resize(first + parts, Sent::Full);
            self.submit(sockets, batch, first, &mut sent[first..]);
            first += parts;
        }
    }

    /// One submission: the parts `first..first + sent.len()`.
    fn submit(&mut self, sockets: &Sockets, batch: &Batch<'_>, first: usize, sent: &mut [Sent]) {
        self.headers.clear();
        let mut pushed = 0;
        for (index, outcome) in sent.iter_mut().enumerate() {
            let (key, part) = batch.part(first + index);
            let Some(socket) = sockets.get(key) else {
                *outcome = Sent::Gone(Errno::BADF);
                continue;
            };
            let descriptor = types::Fd(socket.descriptor.as_raw_fd());
            let entry = entry(descriptor, part, &mut self.headers).user_data(index as u64);
            // SAFETY: the entry's bytes are borrowed by `batch` and its header lies in `headers`, which does not move
            // (at most `ENTRIES` headers, its capacity); `complete` returns only after the kernel let go of both.
            let full = unsafe { self.ring.submission().push(&entry) };
            full.expect("the queue was emptied by the last call and takes `ENTRIES`");
            pushed += 1;
        }
        self.complete(pushed, |index, result| {
            let (key, part) = batch.part(first + index);
            sent[index] = outcome(sockets, key, part, result);
        });
    }

    /// Submits what was pushed and waits until all of it is done.
    fn complete(&mut self, pushed: usize, mut done: impl FnMut(usize, i32)) {
        let mut left = pushed;
        while left > 0 {
            if let Err(error) = self.ring.submit_and_wait(left) {
                let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
                if !error.raw_os_error().is_some_and(|errno| passing.contains(&errno)) {
                    // The kernel may still hold borrowed bytes and says nothing about them: there is no way on.
                    tracing::error!(%error, "io_uring_enter failed with sends under way");
                    std::process::abort();
                }
            }
            for completion in self.ring.completion() {
                left -= 1;
                let index = usize::try_from(completion.user_data());
                done(index.expect("an index of this submission"), completion.result());
            }
        }
    }
}

/// A send of one slice, or a sendmsg of several.
fn entry(
    descriptor: types::Fd,
    part: &[io::IoSlice<'_>],
    headers: &mut Vec<libc::msghdr>,
) -> squeue::Entry {
    if let [one] = part {
        let bytes = u32::try_from(one.len()).unwrap_or(u32::MAX);
        return opcode::Send::new(descriptor, one.as_ptr(), bytes).flags(FLAGS).build();
    }
    headers.push(libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        // IoSlice has the layout of iovec, and the kernel reads it only.
        msg_iov: part.as_ptr().cast_mut().cast(),
        msg_iovlen: part.len(),
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    });
    let header: *const libc::msghdr = &raw const headers[headers.len() - 1];
    opcode::SendMsg::new(descriptor, header).flags(FLAGS.cast_unsigned()).build()
}

/// What a completion says.
fn outcome(sockets: &Sockets, key: Key, part: &[io::IoSlice<'_>], result: i32) -> Sent {
    match usize::try_from(result) {
        Ok(bytes) => Sent::Bytes(bytes),
        Err(_) => match Errno::from_raw_os_error(-result) {
            Errno::AGAIN => Sent::Full,
            Errno::INTR | Errno::CANCELED => plain::send(sockets, key, part),
            error => Sent::Gone(error),
        },
    }
}
