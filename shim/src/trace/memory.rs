//! The program's memory, read as a tracer reads it: a bad address is an answer, not a fault.
//!
//! `process_vm_readv(2)` on ourselves. Where it is forbidden (some sandboxes), every address looks bad and is shown as a number.

use std::mem::MaybeUninit;

use libc::iovec;

use crate::kernel::system_call;

/// Fills `into` from `address`. `false` if not all of it is readable.
pub(super) fn read(address: usize, into: &mut [u8]) -> bool {
    let length = into.len();
    if length == 0 {
        return true;
    }
    let local = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: length };
    let remote = iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length };
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: one vector each; the local one is all of `into`, the remote one is only an address to the kernel.
    let copied = unsafe {
        system_call!(libc::SYS_process_vm_readv, pid, &raw const local, 1, &raw const remote, 1, 0,)
    };
    usize::try_from(copied) == Ok(length)
}

/// A plain C value at `address`.
///
/// The type must be made of integers and pointers alone, so that any bytes are a value of it; C structures of system calls
/// are.
pub(super) fn load<T: Plain>(address: usize) -> Option<T> {
    if address == 0 {
        return None;
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let bytes = value.as_mut_ptr().cast::<u8>();
    // SAFETY: as many bytes as the value has, zeroed above, and nobody else knows them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, size_of::<T>()) };
    // SAFETY: every byte is initialised, and `Plain` promises that any bytes are a value.
    read(address, bytes).then(|| unsafe { value.assume_init() })
}

/// A type of which any bytes are a value.
///
/// # Safety
/// Integers, pointers, and structures and arrays of them only.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for i32 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for i64 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: an array of integers.
unsafe impl Plain for [i32; 2] {}
// SAFETY: an array of integers.
unsafe impl Plain for [i64; 2] {}
// SAFETY: an array of integers.
unsafe impl Plain for [usize; 2] {}
// SAFETY: a pointer and an integer.
unsafe impl Plain for libc::msghdr {}
// SAFETY: a msghdr and an integer.
unsafe impl Plain for libc::mmsghdr {}
// SAFETY: integers.
unsafe impl Plain for libc::flock {}
// SAFETY: integers.
unsafe impl Plain for libc::epoll_event {}
// SAFETY: integers.
unsafe impl Plain for libc::pollfd {}
// SAFETY: integers.
unsafe impl Plain for libc::cmsghdr {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_known() {
        let value = [7_i32, -1];
        assert_eq!(load::<[i32; 2]>(value.as_ptr().addr()), Some(value));
        assert_eq!(load::<i32>(0), None);
        assert_eq!(load::<i32>(1), None);
        assert!(!read(usize::MAX - 3, &mut [0; 16]));
        assert!(read(1, &mut []));
    }
}
