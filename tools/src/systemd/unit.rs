//! A unit as systemd puts it together: its file, then the drop-ins of every folder by name (systemd.unit(5)).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where units are, the strongest first.
pub(crate) const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Our own drop-in, which must not be judged.
pub(crate) const OWN_DROP_IN: &str = "mqttshim.conf";

/// The settings of its section `[Service]`, in their order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Unit {
    settings: Vec<(String, String)>,
}

impl Unit {
    /// Reads the unit of this name. `None` if there is none in `folders`.
    pub(crate) fn read(name: &str, folders: &[PathBuf]) -> Option<Unit> {
        let main = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())?;
        let mut unit = Unit::default();
        unit.parse(&fs::read_to_string(main).ok()?);
        let mut drop_ins = BTreeMap::new();
        for folder in folders.iter().rev() {
            let Ok(entries) = fs::read_dir(folder.join(format!("{name}.d"))) else { continue };
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if let Some(file) = path.file_name().filter(|_| is_conf(&path)) {
                    // A stronger folder's file of the same name replaces a weaker one's.
                    drop_ins.insert(file.to_owned(), path.clone());
                }
            }
        }
        for (_, path) in drop_ins.into_iter().filter(|(file, _)| file != OWN_DROP_IN) {
            unit.parse(&fs::read_to_string(path).unwrap_or_default());
        }
        Some(unit)
    }

    /// Takes the settings of a file over.
    pub(crate) fn parse(&mut self, text: &str) {
        let mut is_service = false;
        let joined = text.replace("\\\n", " ");
        for line in joined.lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with('[') {
                is_service = line == "[Service]";
            } else if let (true, Some((name, value))) = (is_service, line.split_once('=')) {
                self.settings.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }

    /// The last value of a setting of which the last counts. Empty is none.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        let last = self.settings.iter().rev().find(|(known, _)| known == name);
        last.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|value| {
            ["1", "yes", "true", "on"].contains(&value.to_ascii_lowercase().as_str())
        })
    }

    /// The words of a setting that adds up. An empty value begins anew.
    pub(crate) fn words(&self, name: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for (_, value) in self.settings.iter().filter(|(known, _)| known == name) {
            match value.is_empty() {
                true => words.clear(),
                false => words.extend(value.split_whitespace()),
            }
        }
        words
    }

    /// The value an `Environment=` gives a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let mut value = None;
        for word in self.words("Environment") {
            let word = word.trim_matches(['"', '\'']);
            if let Some((_, given)) = word.split_once('=').filter(|(known, _)| *known == name) {
                value = Some(given.to_owned());
            }
        }
        value
    }

    /// The program it starts, without systemd's own marks.
    pub(crate) fn program(&self) -> Option<&str> {
        let command = self.last("ExecStart")?.split_whitespace().next()?;
        Some(command.trim_start_matches(['-', '@', ':', '+', '!', '|']))
    }
}

fn is_conf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_come_after_the_unit_and_ours_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> = ["etc", "lib"].map(|name| root.path().join(name)).into();
        for folder in &folders {
            fs::create_dir_all(folder.join("a.service.d")).unwrap();
        }
        fs::write(folders[1].join("a.service"), "[Service]\nUser=a\nExecStart=-/bin/a b\n")
            .unwrap();
        let weak = "[Unit]\nUser=no\n[Service]\nUser=b\nEnvironment=A=1 \\\n \"B=2 3\"\n";
        fs::write(folders[1].join("a.service.d/1.conf"), weak).unwrap();
        fs::write(folders[1].join("a.service.d/2.conf"), "[Service]\nUser=weak\n").unwrap();
        fs::write(folders[0].join("a.service.d/2.conf"), "[Service]\n#User=x\nUser=strong\n")
            .unwrap();
        fs::write(folders[0].join("a.service.d/mqttshim.conf"), "[Service]\nUser=ours\n").unwrap();
        let unit = Unit::read("a.service", &folders).unwrap();
        assert_eq!(unit.last("User"), Some("strong"));
        assert_eq!(unit.program(), Some("/bin/a"));
        assert_eq!(unit.variable("A").as_deref(), Some("1"));
        assert_eq!(Unit::read("b.service", &folders), None);
    }

    #[test]
    fn an_empty_value_begins_anew() {
        let mut unit = Unit::default();
        unit.parse("[Service]\nX=a b\nX=\nX=c\nY=yes\nZ=\n");
        assert_eq!(unit.words("X"), ["c"]);
        assert!(unit.is_on("Y") && !unit.is_on("X"));
        assert_eq!(unit.last("Z"), None);
    }
}
