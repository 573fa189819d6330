//! A scratch folder of one test, which a broker that gave up root can read too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// See the module.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Makes one. Its name is short: a UNIX socket's path holds 107 bytes.
    ///
    /// # Panics
    /// If the machine refuses.
    #[must_use]
    pub fn new() -> Folder {
        let folder = tempfile::Builder::new().prefix("mqi").tempdir().expect("a scratch folder");
        let folder = Folder(folder);
        folder.open_to_all(folder.path());
        folder
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file everybody can read.
    ///
    /// # Panics
    /// If the machine refuses.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).expect("our own folder takes files");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("our own file");
        path
    }

    /// Lets every user read and write in `path`, a folder of ours.
    fn open_to_all(&self, path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("our own folder");
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}
