//! Programs that only ask somebody else to start the real one, which then has another environment or another file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// As much of a launcher script as is looked at, in bytes.
const SCRIPT_BYTES: u64 = 4096;

/// Who starts the program instead, and what to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Wrapper {
    /// snapd's confinement.
    #[error(
        "it is a snap, which runs confined and on libraries of its own, where ours is not; install the broker as a package of \
         your distribution instead"
    )]
    Snap,
    /// A flatpak.
    #[error(
        "it is a flatpak, which runs in a file system of its own, where ours is not; install the broker as a package of your \
         distribution instead"
    )]
    Flatpak,
    /// A container.
    #[error(
        "it starts a container, whose programs do not get this environment; preload inside of it: mount the library and the \
         session's folder, and set LD_PRELOAD and MQTTSHIM_SESSION there"
    )]
    Container,
    /// The service manager.
    #[error(
        "it asks the service manager to start the broker, which then does not get this environment; make a drop-in for the \
         service: mqttshim systemd UNIT"
    )]
    ServiceManager,
}

/// Whether `program` is one, by its name, where it lies, or, for a script, what it runs.
pub(crate) fn of(program: &Path) -> Option<Wrapper> {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    // A snap's command is a link to snap(1) itself.
    if named(&real) == Some("snap") || program.starts_with("/snap") || real.starts_with("/snap") {
        return Some(Wrapper::Snap);
    }
    let folders = program.to_string_lossy();
    if folders.contains("/flatpak/exports/bin/") {
        return Some(Wrapper::Flatpak);
    }
    if let Some(wrapper) = [program, &real].into_iter().find_map(|path| by_name(named(path)?)) {
        return Some(wrapper);
    }
    let mut text = Vec::new();
    File::open(&real).ok()?.take(SCRIPT_BYTES).read_to_end(&mut text).ok()?;
    let text = text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())?;
    text.lines().find_map(launched_by)
}

fn named(path: &Path) -> Option<&str> {
    path.file_name().and_then(OsStr::to_str)
}

fn by_name(name: &str) -> Option<Wrapper> {
    match name {
        "snap" => Some(Wrapper::Snap),
        "flatpak" => Some(Wrapper::Flatpak),
        "docker" | "podman" | "nerdctl" | "lxc" | "machinectl" | "kubectl" => {
            Some(Wrapper::Container)
        }
        "systemctl" | "service" | "systemd-run" => Some(Wrapper::ServiceManager),
        _ => None,
    }
}

/// A line of a script that is nothing but such a command, perhaps after `exec`.
fn launched_by(line: &str) -> Option<Wrapper> {
    let mut words = line.split_whitespace().skip_while(|word| *word == "exec");
    let program = Path::new(words.next()?);
    let wrapper = by_name(named(program)?)?;
    let starts = ["run", "start", "restart", "exec"];
    words.next().is_some_and(|verb| starts.contains(&verb)).then_some(wrapper)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn launchers_are_known_by_name_place_and_what_they_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("snap"), "\x7fELF").unwrap();
        symlink(path("snap"), path("mosquitto")).unwrap();
        assert_eq!(of(&path("mosquitto")), Some(Wrapper::Snap));
        assert_eq!(of(Path::new("/snap/bin/mosquitto")), Some(Wrapper::Snap));
        let exported = "/var/lib/flatpak/exports/bin/org.example.Broker";
        assert_eq!(of(Path::new(exported)), Some(Wrapper::Flatpak));
        assert_eq!(of(Path::new("/usr/bin/podman")), Some(Wrapper::Container));
        assert_eq!(of(Path::new("/usr/bin/systemctl")), Some(Wrapper::ServiceManager));
        for (text, wrapper) in [
            ("#!/bin/sh\nexec /usr/bin/snap run broker \"$@\"\n", Some(Wrapper::Snap)),
            ("#!/bin/sh\nexec flatpak run org.example.Broker\n", Some(Wrapper::Flatpak)),
            ("#!/bin/sh\n  docker run --rm broker\n", Some(Wrapper::Container)),
            ("#!/bin/sh\nsystemctl start mosquitto\n", Some(Wrapper::ServiceManager)),
            ("#!/bin/sh\nexec /usr/sbin/mosquitto\n# docker run\n", None),
            ("#!/bin/sh\nsystemctl is-active x && exit\nexec broker\n", None),
            ("exec docker run\n", None),
        ] {
            fs::write(path("script"), text).unwrap();
            assert_eq!(of(&path("script")), wrapper, "{text}");
        }
        assert_eq!(of(Path::new("/bin/sh")), None);
        assert_eq!(of(Path::new("/no/such/program")), None);
    }
}
