//! Which settings of a service keep the library from being found, or from finding the session (systemd.exec(5)).

use std::path::Path;

use super::unit::Unit;

/// Descriptors a service gets where its unit does not say.
const DESCRIPTORS_USUAL: &str = "LimitNOFILE=65536";

/// What to say and what to add.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// For the reader: "mend: …" must be changed by hand, "note: …" is worth knowing.
    pub(crate) remarks: Vec<String>,
    /// Lines of `[Service]`.
    pub(crate) lines: Vec<String>,
}

impl Advice {
    fn mend(&mut self, what: String) {
        self.remarks.push(format!("mend: {what}"));
    }

    fn note(&mut self, what: String) {
        self.remarks.push(format!("note: {what}"));
    }
}

/// Looks at every setting that matters.
pub(crate) fn check(unit: &Unit, library: &Path, session: &Path) -> Advice {
    let mut advice = Advice::default();
    families(unit, &mut advice);
    users(unit, &mut advice);
    for (what, path) in [("the library", library), ("the session", session)] {
        hidden(unit, what, path, &mut advice);
    }
    root(unit, library, session, &mut advice);
    calls(unit, &mut advice);
    if unit.last("LimitNOFILE").is_none() {
        advice.note("every client takes a descriptor, and LimitNOFILE= is not set".into());
        advice.lines.push(DESCRIPTORS_USUAL.into());
    }
    advice
}

/// The session, and every connection's placeholder, are AF_UNIX sockets.
fn families(unit: &Unit, advice: &mut Advice) {
    let words = unit.words("RestrictAddressFamilies");
    let is_denied = words.first().is_some_and(|word| word.starts_with('~'));
    let names_unix = words.iter().any(|word| word.trim_start_matches('~') == "AF_UNIX");
    match (words.is_empty(), is_denied, names_unix) {
        (false, false, false) => advice.lines.push("RestrictAddressFamilies=AF_UNIX".into()),
        (_, true, true) => advice.mend(
            "RestrictAddressFamilies=~… denies AF_UNIX, which the session and every connection need: take it off that list"
                .into(),
        ),
        _ => {}
    }
}

fn users(unit: &Unit, advice: &mut Advice) {
    if unit.is_on("PrivateUsers") {
        advice.mend(
            "PrivateUsers=yes makes root's dpu-server look like nobody's, and the library refuses a session of nobody's"
                .into(),
        );
        advice.lines.push("PrivateUsers=no".into());
    }
    if let Some(user) = unit.last("User").filter(|_| !unit.is_on("DynamicUser")) {
        advice.note(format!(
            "it runs as {user}, who must be able to read the library, and be in the group if dpu-server runs with --session-group"
        ));
    }
}

/// Folders that a service may not see.
fn hidden(unit: &Unit, what: &str, path: &Path, advice: &mut Advice) {
    let is_below = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let shown = path.display();
    if unit.is_on("PrivateTmp") && is_below(&["/tmp", "/var/tmp"]) {
        advice.mend(format!(
            "PrivateTmp=yes hides {what}, {shown}: put it elsewhere, such as /run/mqttshim"
        ));
    }
    let home = unit.last("ProtectHome").unwrap_or("no");
    if !matches!(home, "no" | "false" | "0" | "off" | "read-only")
        && is_below(&["/home", "/root", "/run/user"])
    {
        advice.mend(format!(
            "ProtectHome={home} hides {what}, {shown}: install it outside of home folders"
        ));
    }
    for name in ["InaccessiblePaths", "TemporaryFileSystem"] {
        for word in unit.words(name) {
            let folder = word.trim_start_matches(['-', '+']).split(':').next().unwrap_or(word);
            if path.starts_with(folder) {
                advice.mend(format!("{name}={word} hides {what}, {shown}"));
            }
        }
    }
}

/// A root of its own: both are brought in.
fn root(unit: &Unit, library: &Path, session: &Path, advice: &mut Advice) {
    let own = ["RootDirectory", "RootImage"].iter().find(|name| unit.last(name).is_some());
    let Some(name) = own else { return };
    advice.note(format!(
        "{name}= gives it a root of its own, into which library and session are brought"
    ));
    advice.lines.push(format!("BindReadOnlyPaths={}", library.display()));
    if let Some(folder) = session.parent() {
        advice.lines.push(format!("BindPaths={}", folder.display()));
    }
}

/// A list of allowed calls has all the library needs if it has what systemd gives services.
fn calls(unit: &Unit, advice: &mut Advice) {
    let words = unit.words("SystemCallFilter");
    let is_allowing = words.first().is_some_and(|word| !word.starts_with('~'));
    if is_allowing && !words.contains(&"@system-service") {
        advice.note(
            "SystemCallFilter= must allow @basic-io, @io-event, @ipc and @network-io for the library; @system-service has them"
                .into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &str) -> Advice {
        let mut unit = Unit::default();
        unit.parse(&format!("[Service]\nLimitNOFILE=9\n{settings}\n"));
        check(&unit, Path::new("/home/me/libmqttshim.so"), Path::new("/tmp/m/session.sock"))
    }

    #[test]
    fn each_setting_that_breaks_is_mended_or_named() {
        // Settings, a word of the remark, a line that is added.
        let cases = [
            ("RestrictAddressFamilies=AF_INET AF_INET6", "", "RestrictAddressFamilies=AF_UNIX"),
            ("RestrictAddressFamilies=~AF_UNIX", "mend: RestrictAddressFamilies", ""),
            ("PrivateTmp=yes", "mend: PrivateTmp=yes hides the session", ""),
            ("ProtectHome=tmpfs", "mend: ProtectHome=tmpfs hides the library", ""),
            ("InaccessiblePaths=-/tmp/m", "hides the session", ""),
            ("TemporaryFileSystem=/home:ro", "hides the library", ""),
            ("PrivateUsers=true", "mend: PrivateUsers", "PrivateUsers=no"),
            ("RootDirectory=/srv/a", "note: RootDirectory", "BindPaths=/tmp/m"),
            ("SystemCallFilter=@basic-io", "note: SystemCallFilter", ""),
            ("User=mosquitto", "note: it runs as mosquitto", ""),
        ];
        for (settings, remark, line) in cases {
            let advice = of(settings);
            let said = advice.remarks.join("\n");
            assert!(
                said.contains(remark) && said.is_empty() == remark.is_empty(),
                "{settings}: {said}"
            );
            let added = advice.lines.join("\n");
            assert!(
                added.contains(line) && added.is_empty() == line.is_empty(),
                "{settings}: {added}"
            );
        }
    }

    #[test]
    fn settings_that_do_no_harm_are_left_alone() {
        for settings in [
            "",
            "RestrictAddressFamilies=AF_UNIX AF_INET",
            "RestrictAddressFamilies=~AF_NETLINK",
            "ProtectHome=read-only",
            "PrivateTmp=no",
            "NoNewPrivileges=yes\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nProtectSystem=strict",
            "SystemCallFilter=@system-service",
            "SystemCallFilter=~@mount",
        ] {
            let advice = of(settings);
            assert!(advice.remarks.is_empty() && advice.lines.is_empty(), "{settings}: {advice:?}");
        }
    }
}
