//! bpf(2): a map of sockets, a program that sends frames to them, and its link to an interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE` (linux/if_link.h).
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;
/// What the kernel lists it as: `bpftool prog`.
const NAME: &[u8; 16] = b"mqttshim_card\0\0\0";
/// The helpers used are open to any licence.
const LICENSE: &std::ffi::CStr = c"MIT OR Apache-2.0";

/// `struct bpf_insn` (linux/bpf.h).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// The target in the low half, the source in the high one.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// How a program is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// By the driver, before the kernel makes anything of a frame.
    Native,
    /// By the kernel, on any interface.
    Generic,
}

/// The members of `union bpf_attr` for each command, and no more: the kernel takes what is missing for zero.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A map from queues to the sockets that take their frames.
pub(crate) fn socket_map(queues_max: u32) -> Result<OwnedFd, Errno> {
    descriptor(
        MAP_CREATE,
        &MapCreate { kind: MAP_OF_SOCKETS, key_bytes: 4, value_bytes: 4, entries_max: queues_max },
    )
}

/// Has `socket` take the frames of `queue`.
pub(crate) fn put_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let value = number(socket);
    let attributes = MapUpdate {
        map: number(map),
        padding: 0,
        key: address(&queue),
        value: address(&value),
        flags: 0,
    };
    call(MAP_UPDATE, &attributes).map(drop)
}

/// Has the kernel check a program.
pub(crate) fn load(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    descriptor(
        PROGRAM_LOAD,
        &ProgramLoad {
            kind: PROGRAM_XDP,
            instruction_count: program.len() as u32,
            instructions: program.as_ptr().expose_provenance() as u64,
            license: LICENSE.as_ptr().expose_provenance() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *NAME,
        },
    )
}

/// Runs a program for each frame that an interface receives, for as long as the descriptor is open.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = match mode {
        Mode::Native => NATIVE,
        Mode::Generic => GENERIC,
    };
    let attributes =
        LinkCreate { program: number(program), interface, attach_type: ATTACH_XDP, flags };
    descriptor(LINK_CREATE, &attributes)
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_fd().as_raw_fd() as u32
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}

fn descriptor<T>(command: libc::c_long, attributes: &T) -> Result<OwnedFd, Errno> {
    let number = call(command, attributes)?;
    // SAFETY: these commands return a new descriptor, which nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn call<T>(command: libc::c_long, attributes: &T) -> Result<i32, Errno> {
    let (at, bytes) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the kernel reads `bytes` bytes at `at`, and what the addresses in them name: each caller made these of references
    // that live until the call has returned. It writes nothing there (no log is asked for).
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, at, bytes) };
    if returned >= 0 {
        return Ok(returned as i32);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
