//! Small C programs: ordinary, dynamically linked ones, which is what the library is for.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Folder, paths};

/// Compiles `source`, a file of this crate, into `folder`.
///
/// # Panics
/// With the compiler's words, if it refuses.
#[must_use]
#[track_caller]
pub fn compile(source: &str, folder: &Path, arguments: &[&str]) -> PathBuf {
    let source = paths::own(source);
    let name = source.file_stem().expect("a source file has a name").to_string_lossy();
    compile_all(&name, std::slice::from_ref(&source), folder, arguments)
}

/// Compiles several files into `folder/name`.
///
/// # Panics
/// With the compiler's words, if it refuses.
#[must_use]
#[track_caller]
pub fn compile_all(name: &str, sources: &[PathBuf], folder: &Path, arguments: &[&str]) -> PathBuf {
    let target = folder.join(name);
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .args(sources)
        .args(arguments)
        .output()
        .expect("the test asked for cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    target
}

/// The program that the C files of `folder`, one of this crate's, make together. Compiled once for all tests: its file's name
/// holds what it was made of.
///
/// # Panics
/// If it does not compile.
#[must_use]
#[track_caller]
pub fn compiled_folder(folder: &str) -> PathBuf {
    let mut sources: Vec<PathBuf> = fs::read_dir(paths::own(folder))
        .expect("a folder of this crate")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    sources.sort();
    let mut hasher = DefaultHasher::new();
    for source in &sources {
        fs::read(source).expect("a file of this crate").hash(&mut hasher);
    }
    let own = std::env::current_exe().expect("a running program has a path");
    let beside = own.parent().expect("a program is in a folder");
    let program = beside.join(format!("{folder}-{:016x}", hasher.finish()));
    if !program.exists() {
        sources.retain(|source| source.extension().is_some_and(|it| it == "c"));
        let scratch = Folder::new();
        let made = compile_all(folder, &sources, scratch.path(), &[]);
        // Beside each other, tests may both have made it: the last rename wins, and both are the same. A copy first,
        // since the scratch folder may be another file system.
        let here = program.with_extension(std::process::id().to_string());
        fs::copy(made, &here)
            .and_then(|_| fs::rename(&here, &program))
            .expect("cargo's own folder");
    }
    program
}
