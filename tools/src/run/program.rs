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

/// The interpreter of a script, one level deep; `None` for anything else. `#!/usr/bin/env NAME` means NAME.
pub(crate) fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(program).ok()?.take(SCRIPT_LINE_BYTES).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?)).to_path_buf();
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    named.and_then(|name| find(OsStr::from_bytes(name)).ok()).or(Some(first))
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
        let of = |text: &str| interpreter(&file(folder.path(), "script", 0o755, text));
        assert_eq!(of("#!/bin/sh -e\nexit\n"), Some("/bin/sh".into()));
        assert_eq!(of("#! /bin/sh\n"), Some("/bin/sh".into()));
        let through_env = of("#!/usr/bin/env -S A=1 sh\n").unwrap();
        assert_eq!(through_env.file_name(), Some(OsStr::new("sh")));
        assert_eq!(of("#!/usr/bin/env no-such-interpreter\n"), Some("/usr/bin/env".into()));
        assert_eq!(of("\x7fELF"), None);
        assert_eq!(of(""), None);
    }
}
