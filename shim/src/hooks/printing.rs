//! dprintf, vdprintf and their fortified forms, which write to a descriptor from inside libc.
//!
//! `dprintf` takes as many arguments as its format asks for. A function of that kind cannot be written in stable Rust, so a few
//! instructions put the registers where a `va_list` finds them and call the form that takes one.

use std::arch::naked_asm;
use std::ffi::c_void;

use libc::{c_char, c_int};

use super::hook;
use super::writing::write;
use crate::guard;
use crate::real;
use crate::table;
use crate::trace;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(
        text: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
}

/// Whether our write is to do it: on the card's sockets, and wherever it is to be traced.
fn is_ours(fd: c_int) -> bool {
    (table::get(fd).is_placeholder() || trace::is_on()) && !guard::inside()
}

/// Writes a text and frees it. Less than all of it is a failure.
///
/// # Safety
/// `text` was made by vasprintf(3) and has `length` bytes, unless `length` is negative.
unsafe fn put(fd: c_int, text: *mut c_char, length: c_int) -> c_int {
    let Ok(wanted) = usize::try_from(length) else { return -1 };
    let mut done = 0;
    while done < wanted {
        // SAFETY: `done` is within the text.
        let rest = unsafe { text.add(done) };
        // SAFETY: the rest of the text.
        let written = unsafe { write(fd, rest.cast(), wanted - done) };
        let Ok(written) = usize::try_from(written) else { break };
        done += written;
    }
    let errno = crate::errno::get();
    // SAFETY: allocated by vasprintf(3), and used no more.
    unsafe { libc::free(text.cast()) };
    crate::errno::restore(errno);
    if done == wanted { length } else { -1 }
}

hook! {
    /// vdprintf(3). A `va_list` is passed as an address.
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !is_ours(fd) {
            // SAFETY: the caller's arguments, unchanged.
            return unsafe { real::vdprintf(fd, format, arguments) };
        }
        let mut text = std::ptr::null_mut();
        // SAFETY: the caller's arguments; `text` is live.
        let length = unsafe { vasprintf(&raw mut text, format, arguments) };
        // SAFETY: vasprintf(3) made it.
        unsafe { put(fd, text, length) }
    }
}

hook! {
    /// vdprintf(3) with a format that was looked at.
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !is_ours(fd) {
            // SAFETY: the caller's arguments, unchanged.
            return unsafe { real::__vdprintf_chk(fd, flag, format, arguments) };
        }
        let mut text = std::ptr::null_mut();
        // SAFETY: the caller's arguments; `text` is live.
        let length = unsafe { __vasprintf_chk(&raw mut text, flag, format, arguments) };
        // SAFETY: vasprintf(3) made it.
        unsafe { put(fd, text, length) }
    }
}

/// The registers' way to a `va_list`, after so many named arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! with_list {
    ($named_bytes:literal, $list:literal, $target:path) => {
        // System V ABI, §3.5.7: six words of rdi … r9, eight of xmm0 … xmm7 in the save area (at 32), and before it the list:
        // offset of the next word, of the next vector, the arguments on the stack, the save area.
        naked_asm!(
            ".cfi_startproc",
            "sub rsp, 216",
            ".cfi_adjust_cfa_offset 216",
            "mov [rsp + 32], rdi",
            "mov [rsp + 40], rsi",
            "mov [rsp + 48], rdx",
            "mov [rsp + 56], rcx",
            "mov [rsp + 64], r8",
            "mov [rsp + 72], r9",
            "test al, al",
            "je 2f",
            "movaps [rsp + 80], xmm0",
            "movaps [rsp + 96], xmm1",
            "movaps [rsp + 112], xmm2",
            "movaps [rsp + 128], xmm3",
            "movaps [rsp + 144], xmm4",
            "movaps [rsp + 160], xmm5",
            "movaps [rsp + 176], xmm6",
            "movaps [rsp + 192], xmm7",
            "2:",
            concat!("mov dword ptr [rsp], ", $named_bytes),
            "mov dword ptr [rsp + 4], 48",
            "lea rax, [rsp + 224]",
            "mov [rsp + 8], rax",
            "lea rax, [rsp + 32]",
            "mov [rsp + 16], rax",
            concat!("mov ", $list, ", rsp"),
            "call {target}",
            "add rsp, 216",
            ".cfi_adjust_cfa_offset -216",
            "ret",
            ".cfi_endproc",
            target = sym $target,
        )
    };
}

/// See above.
#[cfg(target_arch = "aarch64")]
macro_rules! with_list {
    ($named_bytes:literal, $list:literal, $target:path) => {
        // Procedure Call Standard for AArch64, appendix B: x0 … x7 (at 48), q0 … q7 (at 112), and before them the list: the
        // arguments on the stack, the ends of both areas, and how far before those ends the next argument lies.
        naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-240]!",
            ".cfi_adjust_cfa_offset 240",
            ".cfi_rel_offset x29, 0",
            ".cfi_rel_offset x30, 8",
            "mov x29, sp",
            "stp x0, x1, [sp, #48]",
            "stp x2, x3, [sp, #64]",
            "stp x4, x5, [sp, #80]",
            "stp x6, x7, [sp, #96]",
            "stp q0, q1, [sp, #112]",
            "stp q2, q3, [sp, #144]",
            "stp q4, q5, [sp, #176]",
            "stp q6, q7, [sp, #208]",
            "add x9, sp, #240",
            "str x9, [sp, #16]",
            "str x9, [sp, #32]",
            "add x9, sp, #112",
            "str x9, [sp, #24]",
            concat!("mov w9, #", $named_bytes, " - 64"),
            "str w9, [sp, #40]",
            "mov w9, #-128",
            "str w9, [sp, #44]",
            concat!("add ", $list, ", sp, #16"),
            "bl {target}",
            "ldp x29, x30, [sp], #240",
            ".cfi_adjust_cfa_offset -240",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            target = sym $target,
        )
    };
}

/// dprintf(3). What follows the format is taken up by the instructions.
///
/// # Safety
/// As for the libc function of this name.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "exported in the library only"))]
pub(crate) unsafe extern "C-unwind" fn dprintf(_fd: c_int, _format: *const c_char) -> c_int {
    #[cfg(target_arch = "x86_64")]
    with_list!(16, "rdx", vdprintf);
    #[cfg(target_arch = "aarch64")]
    with_list!(16, "x2", vdprintf);
}

/// dprintf(3) with a format that was looked at. See [`dprintf`].
///
/// # Safety
/// As for the libc function of this name.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "exported in the library only"))]
pub(crate) unsafe extern "C-unwind" fn __dprintf_chk(
    _fd: c_int,
    _flag: c_int,
    _format: *const c_char,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    with_list!(24, "rcx", __vdprintf_chk);
    #[cfg(target_arch = "aarch64")]
    with_list!(24, "x3", __vdprintf_chk);
}
