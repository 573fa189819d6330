//! Which file a command runs, as execvp(3) and execve(2) decide it.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, ffi::OsStr};

use rustix::fs::{Access, access};

/// Longest first line of a script that the kernel reads (execve(2)).
const SCRIPT_LINE_BYTES: u64 = 256;

/// Why there is nothing to run. The exit status is env(1)'s.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FindError {
    /// No such file.
    #[error("{0}: no such program")]
    NotFound(String),
    /// A file, and not to be run by us.
    #[error("{0}: not executable")]
    NotExecutable(String),
}

impl FindError {
    /// 127 not found, 126 found and not to be run.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            FindError::NotFound(_) => 127,
            FindError::NotExecutable(_) => 126,
        }
    }
}

/// Finds the file that `name` runs: itself if it has a slash, else the first in PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, FindError> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, FindError> {
    let shown = || name.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        env::split_paths(path).map(|folder| folder.join(name)).collect()
    };
    let mut found = false;
    for candidate in candidates {
        if candidate.is_file() {
            found = true;
            if access(&candidate, Access::EXEC_OK).is_ok() {
                return Ok(candidate);
            }
        }
    }
    Err(if found { FindError::NotExecutable(shown()) } else { FindError::NotFound(shown()) })
}

/// What keeps a script from running.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ScriptError {
    /// No such interpreter.
    #[error("{}: its interpreter {} is missing or not executable; correct its first line", script.display(), interpreter.display())]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// What its first line names.
        interpreter: PathBuf,
    },
    /// Scripts that interpret scripts, deeper than the kernel goes.
    #[error("{}: its interpreter is a script, and so on, more than {SCRIPTS_MAX} times", .0.display())]
    TooDeep(PathBuf),
}

/// Scripts one inside the other that Linux starts (`fs/exec.c`).
const SCRIPTS_MAX: usize = 5;

/// The file that is loaded in the end: the program itself, or the interpreter of a script, or of the script that is its
/// interpreter.
pub(crate) fn interpreter(program: &Path) -> Result<PathBuf, ScriptError> {
    let mut file = program.to_path_buf();
    for _ in 0..=SCRIPTS_MAX {
        let Some(interpreter) = named_interpreter(&file) else { return Ok(file) };
        if access(&interpreter, Access::EXEC_OK).is_err() {
            return Err(ScriptError::NoInterpreter { script: file, interpreter });
        }
        file = interpreter;
    }
    Err(ScriptError::TooDeep(program.to_path_buf()))
}

/// The interpreter a script's first line names; `None` for anything else. `#!/usr/bin/env NAME` means NAME.
fn named_interpreter(program: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(program).ok()?.take(SCRIPT_LINE_BYTES).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?)).to_path_buf();
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    Some(find(OsStr::from_bytes(named)).unwrap_or_else(|_| OsStr::from_bytes(named).into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(folder: &Path, name: &str, mode: u32, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_first_executable_in_path_is_run() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = env::join_paths([one.path(), two.path()]).unwrap();
        let name = OsStr::new("broker");
        let missing = find_in(name, &path).unwrap_err();
        assert_eq!(missing.exit_status(), 127);
        file(one.path(), "broker", 0o644, "");
        let plain = find_in(name, &path).unwrap_err();
        assert_eq!((plain.exit_status(), plain), (126, FindError::NotExecutable("broker".into())));
        let program = file(two.path(), "broker", 0o755, "");
        assert_eq!(find_in(name, &path), Ok(program));
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_up() {
        assert!(find_in(OsStr::new("./no-such-broker"), OsStr::new("/bin")).is_err());
        assert_eq!(find_in(OsStr::new("/bin/sh"), OsStr::new("")), Ok("/bin/sh".into()));
    }

    #[test]
    fn a_script_has_an_interpreter_and_env_is_looked_through() {
        let folder = tempfile::tempdir().unwrap();
        let script = |text: &str| file(folder.path(), "script", 0o755, text);
        let of = |text: &str| interpreter(&script(text)).unwrap();
        assert_eq!(of("#!/bin/sh -e\nexit\n"), PathBuf::from("/bin/sh"));
        assert_eq!(of("#! /bin/sh\n"), PathBuf::from("/bin/sh"));
        let through_env = of("#!/usr/bin/env -S A=1 sh\n");
        assert_eq!(through_env.file_name(), Some(OsStr::new("sh")));
        assert_eq!(of("\x7fELF"), folder.path().join("script"));
        assert_eq!(of(""), folder.path().join("script"));
    }

    #[test]
    fn scripts_of_scripts_are_followed_as_far_as_the_kernel_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut inner = PathBuf::from("/bin/sh");
        for depth in 1..=SCRIPTS_MAX + 1 {
            let text = format!("#!{}\n", inner.display());
            inner = file(folder.path(), &format!("s{depth}"), 0o755, &text);
            let ran =
                std::process::Command::new(&inner).stdin(std::process::Stdio::null()).output();
            let found = interpreter(&inner);
            // The kernel is the oracle: ELOOP one step beyond.
            assert_eq!(found.is_ok(), ran.is_ok(), "{depth}: {found:?}, {ran:?}");
        }
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for line in ["#!/no/such/interpreter", "#!/usr/bin/env no-such-interpreter"] {
            let error = interpreter(&file(folder.path(), "s", 0o755, line)).unwrap_err();
            assert!(error.to_string().contains("its first line"), "{error}");
        }
    }
}
