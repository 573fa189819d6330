//! A system call without libc.
//!
//! libc's `syscall` is among the functions we replace, so what must not come back to us cannot use it. rustix, which does the
//! same, has no form for a number that is known at run time only.

use std::arch::naked_asm;
use std::ffi::c_long;

use rustix::io::Errno;

use crate::errno;

/// Failing calls return the negated error, which is never above this: `MAX_ERRNO` of the kernel.
const ERRNO_MAX: c_long = 4095;

/// Makes the call `number` and returns what the kernel does: a negated error below zero.
///
/// # Safety
/// As for the system call.
#[unsafe(naked)]
unsafe extern "C" fn enter(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    #[cfg(target_arch = "x86_64")]
    // System V ABI, §A.2.1: number in rax, arguments in rdi, rsi, rdx, r10, r8, r9. The seventh parameter lies above the return
    // address.
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "ret",
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "ret",
    );
}

/// As `syscall(2)` of libc: −1 and `errno` for a failure.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller keeps the call's contract.
    let value = unsafe { enter(number, first, second, third, fourth, fifth, sixth) };
    if (-ERRNO_MAX..0).contains(&value) {
        errno::set(Errno::from_raw_os_error(-value as i32));
        return -1;
    }
    value
}

/// A system call with up to six arguments, which become words as C passes them.
macro_rules! system_call {
    ($number:expr, $($argument:expr),* $(,)?) => {{
        let given: &[usize] = &[$($crate::kernel::Word::word($argument)),*];
        let mut words = [0_usize; 6];
        words[..given.len()].copy_from_slice(given);
        $crate::kernel::call($number, words)
    }};
}
pub(crate) use system_call;

/// What an argument is as a word. Signed ones are extended, as C does.
pub(crate) trait Word {
    fn word(self) -> usize;
}

macro_rules! word {
    ($($type:ty),*) => { $(impl Word for $type { fn word(self) -> usize { self as usize } })* };
}
word!(i32, u32, i64, u64, usize);

impl<T> Word for *const T {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_returns_what_the_kernel_says() {
        // SAFETY: getpid(2) takes nothing.
        let pid = unsafe { system_call!(libc::SYS_getpid,) };
        assert_eq!(pid, c_long::from(std::process::id()));
        let mut byte = 0_u8;
        // SAFETY: the call fails before it looks at the buffer.
        let failed = unsafe { system_call!(libc::SYS_read, -1, &raw mut byte, 1_usize) };
        assert_eq!((failed, errno::last()), (-1, Errno::BADF));
    }

    #[test]
    fn the_sixth_argument_arrives() {
        let (page, flags) = (4096_usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let protection = libc::PROT_READ;
        // SAFETY: an anonymous mapping at no given address; the offset, its last argument, is off a page and so refused.
        let refused =
            unsafe { system_call!(libc::SYS_mmap, 0, page, protection, flags, -1, 1_usize) };
        assert_eq!((refused, errno::last()), (-1, Errno::INVAL));
    }
}
