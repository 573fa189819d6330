//! Real programs of every kind the library cannot be preloaded into, and whether `mqttshim run` says so.
//!
//! The dynamic loader is the oracle: each sample prints whether a library of our name is in its memory, and it is asked with
//! LD_PRELOAD set by hand. What `run` lets through must have it, what it refuses must not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{skip, stderr, stdout};
use tempfile::TempDir;

const SAMPLE: &str = r#"
#include <stdio.h>
#include <string.h>
int main(void)
{
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		if (strstr(line, "libmqttshim.so"))
			return puts("loaded") < 0;
	return puts("not loaded") < 0;
}
"#;

/// A user who is not root.
const NOBODY: u32 = 65_534;

/// A folder with the samples' source, a harmless library and a copy of the command, all for anybody to use.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Option<Stage> {
        let stage = Stage { folder: TempDir::new().unwrap() };
        fs::set_permissions(stage.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(stage.path("sample.c"), SAMPLE).unwrap();
        fs::write(stage.path("library.c"), "int mqttshim_test_nothing;\n").unwrap();
        fs::copy(env!("CARGO_BIN_EXE_mqttshim"), stage.path("mqttshim")).unwrap();
        stage.compile("cc", &["-shared", "-fPIC"], "library.c", "libmqttshim.so")?;
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `None`, said aloud, where the machine has no such compiler.
    fn compile(&self, compiler: &str, flags: &[&str], source: &str, name: &str) -> Option<PathBuf> {
        let (source, target) = (self.path(source), self.path(name));
        let built = Command::new(compiler).args(flags).arg("-o").arg(&target).arg(source).output();
        if built.is_ok_and(|output| output.status.success()) {
            return Some(target);
        }
        skip(&format!("no {compiler} {} here", flags.join(" ")));
        None
    }

    fn sample(&self, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
        self.compile(compiler, flags, "sample.c", "sample")
    }

    /// Whether the dynamic loader preloads into it.
    fn is_loaded(&self, program: &Path, uid: u32) -> bool {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", self.path("libmqttshim.so")).uid(uid);
        stdout(&command.output().unwrap()) == "loaded\n"
    }

    fn run(&self, program: &Path, uid: u32) -> Output {
        let mut command = Command::new(self.path("mqttshim"));
        command.env("MQTTSHIM_LIBRARY", self.path("libmqttshim.so")).arg("run").arg("--");
        command.arg(program).uid(uid).output().unwrap()
    }

    #[track_caller]
    fn assert_refused(&self, program: &Path, uid: u32, words: &str) {
        assert!(!self.is_loaded(program, uid), "the dynamic loader disagrees");
        let output = self.run(program, uid);
        assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
        let said = stderr(&output);
        assert!(said.contains(words) && said.contains("--fallback kernel"), "{said}");
    }

    #[track_caller]
    fn assert_preloaded(&self, program: &Path, uid: u32) {
        let output = self.run(program, uid);
        assert_eq!(stdout(&output), "loaded\n", "{}", stderr(&output));
    }
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn is_root() -> bool {
    let is_root = own_uid() == 0;
    if !is_root {
        skip("needs root to give files away");
    }
    is_root
}

fn set_mode(program: &Path, mode: u32) {
    fs::set_permissions(program, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_ordinary_program_is_preloaded() {
    let Some(stage) = Stage::new() else { return };
    let Some(program) = stage.sample("cc", &[]) else { return };
    stage.assert_preloaded(&program, own_uid());
    let script = stage.path("script");
    fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    set_mode(&script, 0o755);
    stage.assert_preloaded(&script, own_uid());
}

#[test]
fn static_programs_of_both_kinds_are_refused() {
    let Some(stage) = Stage::new() else { return };
    for flags in [&["-static"], &["-static-pie"]] {
        let Some(program) = stage.sample("cc", flags) else { continue };
        stage.assert_refused(&program, own_uid(), "statically linked");
    }
}

#[test]
fn a_program_of_musl_is_refused() {
    let Some(stage) = Stage::new() else { return };
    let Some(program) = stage.sample("musl-gcc", &[]) else { return };
    // musl's loader knows LD_PRELOAD, and starts no program at all with a library that needs glibc.
    let output = stage.run(&program, own_uid());
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("it uses musl"), "{}", stderr(&output));
}

#[test]
fn a_program_of_32_bits_is_refused() {
    let Some(stage) = Stage::new() else { return };
    // Without a 32-bit libc: a program that only exits, in so many words.
    fs::write(
        stage.path("a.s"),
        ".globl _start\n_start: mov $1, %eax\nxor %ebx, %ebx\nint $0x80\n",
    )
    .unwrap();
    let assembled = Command::new("as")
        .args(["--32", "-o"])
        .args([stage.path("a.o"), stage.path("a.s")])
        .status();
    let linked = Command::new("ld")
        .args(["-m", "elf_i386", "--dynamic-linker", "/lib/ld-linux.so.2", "-pie", "-o"])
        .args([stage.path("sample"), stage.path("a.o")])
        .status();
    if !(assembled.is_ok_and(|it| it.success()) && linked.is_ok_and(|it| it.success())) {
        skip("no assembler for 32-bit x86");
        return;
    }
    let output = stage.run(&stage.path("sample"), own_uid());
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("32-bit x86"), "{}", stderr(&output));
}

#[test]
fn a_setuid_program_is_refused_to_others_than_its_owner() {
    let Some(stage) = Stage::new() else { return };
    if !is_root() {
        return;
    }
    let Some(program) = stage.sample("cc", &[]) else { return };
    for (mode, words) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        chown(&program, Some(1), Some(1)).unwrap();
        set_mode(&program, mode);
        stage.assert_refused(&program, NOBODY, words);
        set_mode(&program, 0o755);
        stage.assert_preloaded(&program, NOBODY);
    }
}

#[test]
fn a_program_with_file_capabilities_is_refused_to_others_than_root() {
    let Some(stage) = Stage::new() else { return };
    if !is_root() {
        return;
    }
    let Some(program) = stage.sample("cc", &[]) else { return };
    let set = Command::new("setcap").arg("cap_net_bind_service=+ep").arg(&program).status();
    if !set.is_ok_and(|status| status.success()) {
        skip("setcap is missing, or this file system has no capabilities");
        return;
    }
    stage.assert_refused(&program, NOBODY, "file capabilities");
    assert_eq!(stage.is_loaded(&program, 0), stage.run(&program, 0).status.success());
}

#[test]
fn a_library_that_the_user_cannot_read_is_said_to_be_so() {
    let Some(stage) = Stage::new() else { return };
    if !is_root() {
        return;
    }
    let Some(program) = stage.sample("cc", &[]) else { return };
    set_mode(&stage.path("libmqttshim.so"), 0o700);
    stage.assert_refused(&program, NOBODY, "cannot be read by this user");
}

#[test]
fn the_printed_units_pass_systemds_own_check() {
    let Some(stage) = Stage::new() else { return };
    let unit = stage.path("dpu-server.service");
    let printed = |arguments: &[&str]| {
        let mut command = Command::new(stage.path("mqttshim"));
        command.env("MQTTSHIM_LIBRARY", stage.path("libmqttshim.so")).arg("systemd");
        command.args(arguments).output().unwrap()
    };
    let missing = printed(&["no-such-unit"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("no unit no-such-unit.service"), "{}", stderr(&missing));
    fs::copy("/bin/true", stage.path("dpu-server")).unwrap();
    fs::write(&unit, printed(&["--server"]).stdout).unwrap();
    let verify = |path: &Path| Command::new("systemd-analyze").arg("verify").arg(path).output();
    let Ok(judged) = verify(&unit) else {
        skip("systemd-analyze is missing (apt-get install systemd)");
        return;
    };
    assert!(judged.status.success(), "{}", stderr(&judged));
    assert!(!stderr(&judged).contains("dpu-server.service"), "{}", stderr(&judged));
}
