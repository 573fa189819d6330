//! Programs of this machine where it has them, and ELF files of a few hundred bytes where it has not.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use super::*;

/// A 64-bit little-endian executable with at most an interpreter and a `.go.buildinfo` section.
fn tiny(machine: u16, interpreter: Option<&str>, is_go: bool) -> NamedTempFile {
    let names = b"\0.go.buildinfo\0.shstrtab\0";
    let path = interpreter.map(|path| [path.as_bytes(), b"\0"].concat()).unwrap_or_default();
    let programs = u16::from(interpreter.is_some());
    let path_at = 64 + 56 * u64::from(programs);
    let names_at = path_at + path.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let sections: u16 = if is_go { 3 } else { 0 };
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    out.resize(16, 0);
    out.extend(2_u16.to_le_bytes());
    out.extend(machine.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(0_u64.to_le_bytes());
    out.extend(if programs > 0 { 64_u64 } else { 0 }.to_le_bytes());
    out.extend(if sections > 0 { sections_at } else { 0 }.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    for half in [64, 56, programs, 64, sections, if is_go { 2 } else { 0 }] {
        out.extend(half.to_le_bytes());
    }
    if programs > 0 {
        out.extend([3_u32.to_le_bytes(), 4_u32.to_le_bytes()].concat());
        let size = path.len() as u64;
        for word in [path_at, path_at, path_at, size, size, 1] {
            out.extend(word.to_le_bytes());
        }
    }
    out.extend(&path);
    out.extend(names);
    out.resize(usize::try_from(sections_at).unwrap(), 0);
    // Name and type of: nothing, .go.buildinfo (PROGBITS), .shstrtab (STRTAB).
    for (name, kind) in [(0_u32, 0_u32), (1, 1), (15, 3)].iter().take(usize::from(sections)) {
        let size = if *kind == 3 { names.len() as u64 } else { 0 };
        out.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        for word in [0, 0, names_at, size, 0, 1, 0] {
            out.extend(u64::to_le_bytes(word));
        }
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&out).unwrap();
    file
}

const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";

fn verdict(program: &Path) -> Option<Obstacle> {
    let library = tiny(elf::EM_X86_64, None, false);
    obstacle(program, library.path()).unwrap()
}

#[test]
fn a_dynamic_glibc_program_can_be_preloaded() {
    assert_eq!(verdict(tiny(elf::EM_X86_64, Some(GLIBC), false).path()), None);
}

#[test]
fn a_program_without_interpreter_is_static() {
    assert_eq!(verdict(tiny(elf::EM_X86_64, None, false).path()), Some(Obstacle::Static));
}

#[test]
fn the_dynamic_loader_itself_is_not_static() {
    let folder = TempDir::new().unwrap();
    let loader = folder.path().join("ld-linux-x86-64.so.2");
    fs::copy(tiny(elf::EM_X86_64, None, false).path(), &loader).unwrap();
    assert_eq!(verdict(&loader), None);
}

#[test]
fn musl_is_named() {
    let musl = "/lib/ld-musl-x86_64.so.1";
    let found = verdict(tiny(elf::EM_X86_64, Some(musl), false).path());
    assert_eq!(found, Some(Obstacle::Musl(musl.to_owned())));
}

#[test]
fn another_architecture_is_named() {
    let found = verdict(tiny(elf::EM_AARCH64, Some(GLIBC), false).path()).unwrap();
    assert!(found.to_string().contains("64-bit AArch64"), "{found}");
    assert!(found.to_string().contains("64-bit x86-64"), "{found}");
}

#[test]
fn go_is_recognised() {
    assert_eq!(verdict(tiny(elf::EM_X86_64, Some(GLIBC), true).path()), Some(Obstacle::Go));
}

#[test]
fn what_is_no_elf_file_says_so() {
    let mut file = NamedTempFile::new().unwrap();
    assert_eq!(verdict(file.path()), Some(Obstacle::NotElf));
    file.write_all(b"\x7fELF\x02").unwrap();
    assert_eq!(verdict(file.path()), Some(Obstacle::NotElf));
}

#[test]
fn setuid_to_somebody_else_is_secure_mode() {
    let file = tiny(elf::EM_X86_64, Some(GLIBC), false);
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o4755)).unwrap();
    // Owned by us: no change of identity.
    assert_eq!(verdict(file.path()), None);
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped the other half: giving a file away needs root");
        return;
    }
    std::os::unix::fs::chown(file.path(), Some(65_534), None).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(verdict(file.path()), Some(Obstacle::SetId("setuid")));
}

#[test]
fn a_real_dynamic_and_a_real_static_program_are_told_apart() {
    let truth = Path::new("/bin/true");
    assert_eq!(obstacle(truth, truth).unwrap(), None);
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped the static half: no C compiler with a static libc");
        return;
    }
    assert_eq!(obstacle(&program, truth).unwrap(), Some(Obstacle::Static));
}
