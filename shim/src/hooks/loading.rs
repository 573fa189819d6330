//! dlopen, dlmopen: code that the program loads may be a plugin, which permits or changes what no one else can see.
//!
//! ```text
//! dlopen ── before: the policy epoch rises, the name is noted ──► jump to the real one
//! ```
//!
//! Where the loader looks for a library, and for those that it needs, depends on who called: it finds out by the address it
//! will return to. The call is therefore not made here but jumped to, with the caller's registers and return address, which takes a
//! few instructions of assembly. It never returns here: [`crate::plugins`] finds out by itself what was loaded.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};

use libc::{RTLD_NOLOAD, c_char, c_int, c_long};

use super::note;
use crate::plugins;
use crate::policy;
use crate::real;

/// Calls `$before` with the arguments of a call, of which there are three at most, and jumps with the same to what it returns.
macro_rules! jump_after {
    ($before:path) => {
        #[cfg(target_arch = "x86_64")]
        naked_asm!(
            // Three words and the return address: the stack is aligned for a call.
            "push rdi",
            "push rsi",
            "push rdx",
            "call {before}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            before = sym $before,
        );
        #[cfg(target_arch = "aarch64")]
        naked_asm!(
            "stp x29, x30, [sp, #-48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {before}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "br x16",
            before = sym $before,
        );
    };
}

/// dlopen(3)
///
/// # Safety
/// As for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "exported in the library only"))]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    jump_after!(before_dlopen);
}

/// dlmopen(3)
///
/// # Safety
/// As for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "exported in the library only"))]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn dlmopen(
    space: c_long,
    name: *const c_char,
    flags: c_int,
) -> *mut c_void {
    jump_after!(before_dlmopen);
}

/// What a call of dlopen goes on to.
///
/// # Safety
/// `name` is null or a string, as dlopen(3) obliges its caller to pass.
unsafe extern "C" fn before_dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { before(name, flags, false) };
    real::dlopen_address()
}

/// What a call of dlmopen goes on to.
///
/// # Safety
/// As for [`before_dlopen`].
unsafe extern "C" fn before_dlmopen(
    _space: c_long,
    name: *const c_char,
    flags: c_int,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { before(name, flags, true) };
    real::dlmopen_address()
}

/// The policy epoch rises, and the name is noted, unless nothing can be loaded.
///
/// # Safety
/// As for [`before_dlopen`].
unsafe fn before(name: *const c_char, flags: c_int, is_apart: bool) {
    if name.is_null() || flags & RTLD_NOLOAD != 0 {
        return;
    }
    policy::rise();
    // SAFETY: a string, as the caller promises, which stays for the time of the call.
    let name = unsafe { CStr::from_ptr(name) };
    note(|| plugins::about_to_load(name, is_apart));
}
