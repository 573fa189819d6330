//! A network namespace of one test's own, with a TAP device whose other end is the card.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::Process;
use crate::{Folder, needs, wait};

/// The interface in it.
pub const INTERFACE: &str = "mq0";
/// The card's addresses, as `--address` takes them, and this end's.
pub const CARD: [&str; 2] = ["10.77.0.1/24", "fd77::1/64"];
const OWN: [&str; 2] = ["10.77.0.2/24", "fd77::2/64"];

/// See the module. The thread that made it lives in it, and what that starts; it ends with the test.
#[derive(Debug)]
pub struct Namespace {
    _holder: Process,
}

impl Namespace {
    /// Moves this thread into a new namespace; `None`, said loudly, where that is not allowed.
    ///
    /// # Panics
    /// If it may be made, and cannot be.
    #[must_use]
    #[track_caller]
    pub fn enter(folder: &Folder) -> Option<Namespace> {
        if !needs::is_root() || !needs::has("ip") || !needs::has("unshare") {
            return None;
        }
        let mut command = Command::new("unshare");
        let holder =
            Process::start("namespace", folder.path(), command.args(["--net", "sleep", "600"]));
        let path = format!("/proc/{}/ns/net", holder.pid());
        let ours = fs::read_link("/proc/self/ns/net").expect("a namespace has a name");
        wait::until("the namespace is there", || {
            fs::read_link(&path).ok().filter(|theirs| *theirs != ours)
        });
        let namespace = File::open(&path).expect("the holder lives");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may");
        ip(&["link", "set", "lo", "up"]);
        ip(&["tuntap", "add", "dev", INTERFACE, "mode", "tap"]);
        ip(&["address", "add", OWN[0], "dev", INTERFACE]);
        ip(&["-6", "address", "add", OWN[1], "dev", INTERFACE, "nodad"]);
        ip(&["link", "set", INTERFACE, "up"]);
        Some(Namespace { _holder: holder })
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", arguments.join(" "));
}
