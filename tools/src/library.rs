//! Where `libmqttshim.so` is.
//!
//! `$MQTTSHIM_LIBRARY`, else beside this program (a build folder), else in `../lib` of it (an installation).

use std::env;
use std::path::{Path, PathBuf};

/// Its file name.
pub(crate) const NAME: &str = "libmqttshim.so";

/// Why it cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FindError {
    /// The variable names something that is no file.
    #[error("MQTTSHIM_LIBRARY names {}, which is not a file", .0.display())]
    Named(PathBuf),
    /// Nowhere.
    #[error(
        "{NAME} is in none of these places: {}; build it (`make build`) or name it with MQTTSHIM_LIBRARY",
        list(.0)
    )]
    Nowhere(Vec<PathBuf>),
    /// The dynamic loader runs as this user.
    #[error("{} cannot be read by this user, so it would not be loaded: chmod a+r it, and a+x the folders above", .0.display())]
    Unreadable(PathBuf),
    /// ld.so(8) takes spaces and colons in LD_PRELOAD for separators.
    #[error("{} cannot be preloaded from a path with a space or a colon in it: move or link it", .0.display())]
    Separator(PathBuf),
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

/// Finds the library, as an absolute path.
pub(crate) fn find() -> Result<PathBuf, FindError> {
    let named = env::var_os("MQTTSHIM_LIBRARY").filter(|value| !value.is_empty());
    find_from(named.map(PathBuf::from), env::current_exe().ok().as_deref())
}

fn find_from(named: Option<PathBuf>, program: Option<&Path>) -> Result<PathBuf, FindError> {
    let found = match named {
        Some(path) if path.is_file() => path,
        Some(path) => return Err(FindError::Named(path)),
        None => {
            let folder = program.and_then(Path::parent).unwrap_or(Path::new("."));
            let places = vec![folder.join(NAME), folder.join("../lib").join(NAME)];
            match places.iter().find(|place| place.is_file()) {
                Some(place) => place.clone(),
                None => return Err(FindError::Nowhere(places)),
            }
        }
    };
    let found = found.canonicalize().unwrap_or(found);
    if found.to_string_lossy().contains([' ', ':']) {
        return Err(FindError::Separator(found));
    }
    if rustix::fs::access(&found, rustix::fs::Access::READ_OK).is_err() {
        return Err(FindError::Unreadable(found));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_installation_has_it_in_lib_beside_bin() {
        let root = tempfile::tempdir().unwrap();
        let (bin, lib) = (root.path().join("bin"), root.path().join("lib"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let program = bin.join("mqttshim");
        let nowhere = find_from(None, Some(&program)).unwrap_err();
        assert!(matches!(&nowhere, FindError::Nowhere(places) if places.len() == 2), "{nowhere}");
        fs::write(lib.join(NAME), "").unwrap();
        let installed = find_from(None, Some(&program)).unwrap();
        assert_eq!(installed, lib.join(NAME).canonicalize().unwrap());
        // A build folder wins.
        fs::write(bin.join(NAME), "").unwrap();
        let built = find_from(None, Some(&program)).unwrap();
        assert_eq!(built, bin.join(NAME).canonicalize().unwrap());
    }

    #[test]
    fn a_named_library_must_exist_and_have_a_path_that_ld_so_can_read() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a b.so");
        assert_eq!(find_from(Some(path.clone()), None), Err(FindError::Named(path.clone())));
        fs::write(&path, "").unwrap();
        assert!(matches!(find_from(Some(path), None), Err(FindError::Separator(_))));
    }
}
