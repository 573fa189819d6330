//! Why a program would not load a preloaded library, read from its file.
//!
//! ld.so(8), elf(5), execve(2). LD_PRELOAD is an instruction to glibc's dynamic loader: a program without one, with
//! another one, or one that the loader runs in secure mode never sees the library, silently. Only headers are read.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadRef};

/// What keeps a library from being preloaded, with what to do about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Obstacle {
    /// Not an ELF file.
    #[error("it is not an ELF program, so it has no dynamic loader")]
    NotElf,
    /// No PT_INTERP.
    #[error(
        "it is statically linked: it has no dynamic loader that could preload anything; use a dynamically linked build, \
         such as your distribution's package"
    )]
    Static,
    /// Another libc.
    #[error(
        "it uses musl ({0}), and the library is built for glibc; use a glibc build, or build the library against musl"
    )]
    Musl(String),
    /// Another architecture, or another word size.
    #[error(
        "it is a program for {program} and the library is for {library}; use builds that match"
    )]
    Machine {
        /// Of the program.
        program: String,
        /// Of the library.
        library: String,
    },
    /// setuid or setgid to somebody else.
    #[error(
        "it is {0}, so the dynamic loader ignores LD_PRELOAD; start it as the user it would become, without that bit"
    )]
    SetId(&'static str),
    /// File capabilities.
    #[error(
        "it has file capabilities, so the dynamic loader ignores LD_PRELOAD; start it as root, or from a service manager \
         that grants them (AmbientCapabilities= in systemd)"
    )]
    Capabilities,
    /// Go's runtime makes system calls itself.
    #[error(
        "it is a Go program: Go's runtime makes system calls itself and never calls the libc functions the library replaces"
    )]
    Go,
}

/// What an ELF header says.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Facts {
    bits: u32,
    machine: u16,
    interpreter: Option<String>,
    is_go: bool,
}

/// Finds what would keep `library` out of `program`; `None` if nothing does.
pub(crate) fn obstacle(program: &Path, library: &Path) -> Result<Option<Obstacle>> {
    let Some(facts) = facts(program)? else { return Ok(Some(Obstacle::NotElf)) };
    let Some(ours) = facts_of_library(library)? else {
        anyhow::bail!("{} is not an ELF library", library.display());
    };
    if (facts.bits, facts.machine) != (ours.bits, ours.machine) {
        let (program, library) = (facts.kind(), ours.kind());
        return Ok(Some(Obstacle::Machine { program, library }));
    }
    if let Some(obstacle) = secure_mode(program)? {
        return Ok(Some(obstacle));
    }
    Ok(match &facts.interpreter {
        _ if facts.is_go => Some(Obstacle::Go),
        // The dynamic loader itself, told what to load on its command line.
        None if is_loader(program) => None,
        None => Some(Obstacle::Static),
        Some(interpreter) if file_name(interpreter).starts_with("ld-musl") => {
            Some(Obstacle::Musl(interpreter.clone()))
        }
        Some(_) => None,
    })
}

/// The release of a library of ours. `None`: its file does not say, so it is of another kind, or older than the mark.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn version(library: &Path) -> Result<Option<String>> {
    let file = File::open(library).with_context(|| format!("cannot read {}", library.display()))?;
    let cache = ReadCache::new(file);
    let version = ElfFile64::<Endianness, _>::parse(&cache).ok().and_then(|elf| {
        let data = elf.section_by_name(".mqttshim.version")?.data().ok()?;
        Some(String::from_utf8_lossy(data).into_owned())
    });
    Ok(version)
}

fn is_loader(program: &Path) -> bool {
    let real = program.canonicalize().unwrap_or_else(|_| PathBuf::from(program));
    let name = file_name(&real.to_string_lossy()).to_owned();
    name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so"
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// ld.so(8), "secure-execution mode": the effective ids would differ from the real ones, or capabilities be gained.
fn secure_mode(program: &Path) -> Result<Option<Obstacle>> {
    let metadata =
        fs::metadata(program).with_context(|| format!("cannot look at {}", program.display()))?;
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    if metadata.mode() & 0o4000 != 0 && metadata.uid() != uid {
        return Ok(Some(Obstacle::SetId("setuid")));
    }
    if metadata.mode() & 0o2000 != 0 && metadata.gid() != gid {
        return Ok(Some(Obstacle::SetId("setgid")));
    }
    let mut value = [0; 64];
    let has = rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok();
    Ok((has && uid != 0).then_some(Obstacle::Capabilities))
}

fn facts(path: &Path) -> Result<Option<Facts>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let cache = ReadCache::new(file);
    Ok(parse(&cache))
}

fn facts_of_library(path: &Path) -> Result<Option<Facts>> {
    facts(path).context("the library to preload")
}

fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<Facts> {
    let ident = data.read_bytes_at(0, 5).ok()?;
    match ident {
        [0x7f, b'E', b'L', b'F', elf::ELFCLASS32] => {
            read_header(FileHeader32::<Endianness>::parse(data).ok()?, data, 32)
        }
        [0x7f, b'E', b'L', b'F', elf::ELFCLASS64] => {
            read_header(FileHeader64::<Endianness>::parse(data).ok()?, data, 64)
        }
        _ => None,
    }
}

fn read_header<'data, H, R>(header: &H, data: R, bits: u32) -> Option<Facts>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let endian = header.endian().ok()?;
    let mut interpreter = None;
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(path)) = segment.interpreter(endian, data) {
            interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    // A stripped section table only means that a Go program is not recognised.
    let is_go = header
        .sections(endian, data)
        .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some());
    Some(Facts { bits, machine: header.e_machine(endian), interpreter, is_go })
}

impl Facts {
    fn kind(&self) -> String {
        let name = match self.machine {
            elf::EM_X86_64 => "x86-64",
            elf::EM_AARCH64 => "AArch64",
            elf::EM_386 => "x86",
            elf::EM_ARM => "Arm",
            elf::EM_RISCV => "RISC-V",
            elf::EM_PPC64 => "POWER",
            elf::EM_S390 => "IBM Z",
            other => return format!("ELF machine {other}, {}-bit", self.bits),
        };
        format!("{}-bit {name}", self.bits)
    }
}

#[cfg(test)]
mod tests;
