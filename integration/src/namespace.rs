//! A network namespace of one test's own, with a link whose other end is the card.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{needs, wait};

/// This end of the link.
pub const INTERFACE: &str = "mq0";
/// The card's end of a veth pair, or its TAP device on a bridge.
pub const CARD_INTERFACE: &str = "mq1";
/// The bridge's end of the pair whose other end is ours.
const BRIDGED: &str = "mq2";
/// The card's addresses, as `--address` takes them.
pub const CARD: [&str; 2] = ["10.77.0.1/24", "fd77::1/64"];
/// The kernel's, at this end.
pub const HOST: [&str; 2] = ["10.77.0.2/24", "fd77::2/64"];
/// Where a wire is between the two (see [`crate::lossy`]): its end at ours, and its end at the card's.
pub const WIRE: [&str; 2] = ["mw0", "mw1"];

/// What joins the card and the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    /// Two veth pairs, with a wire of the test's between them, which it has to bring: the kernel, [`WIRE`], the card on AF_XDP.
    Wire,
    /// A TAP device.
    Tap,
    /// A veth pair, at whose other end the card has what AF_XDP takes from the kernel.
    Veth,
    /// A TAP device on a bridge, and a device that leaves nothing to others: what comes from the card is cut and finished by the kernel
    /// on its way, and arrives as it would over a wire.
    Bridge,
}

impl Link {
    /// The card's port on it, as `--port` takes it.
    #[must_use]
    pub fn port(self) -> String {
        match self {
            Link::Wire => format!("xdp:{CARD_INTERFACE}"),
            Link::Tap => format!("tap:{INTERFACE}"),
            Link::Veth => format!("xdp:{CARD_INTERFACE}"),
            Link::Bridge => format!("tap:{CARD_INTERFACE}"),
        }
    }

    /// What ip(8) makes it by.
    fn commands(self) -> String {
        match self {
            Link::Wire => {
                let [own, cards] = WIRE;
                format!(
                    "link add {INTERFACE} type veth peer name {own}\n\
                     link add {CARD_INTERFACE} type veth peer name {cards}\n\
                     link set {own} up\nlink set {cards} up\nlink set {CARD_INTERFACE} up\n"
                )
            }
            Link::Tap => format!("tuntap add dev {INTERFACE} mode tap\n"),
            Link::Veth => format!(
                "link add {INTERFACE} type veth peer name {CARD_INTERFACE}\n\
                 link set {CARD_INTERFACE} up\n"
            ),
            Link::Bridge => format!(
                "tuntap add dev {CARD_INTERFACE} mode tap\n\
                 link add {INTERFACE} type veth peer name {BRIDGED}\n\
                 link add mq3 type bridge\n\
                 link set {CARD_INTERFACE} up master mq3\n\
                 link set {BRIDGED} up master mq3\n\
                 link set mq3 up\n"
            ),
        }
    }
}

/// See the module. The thread that made it lives in it, and what that starts; it ends with the last of them.
#[derive(Debug)]
pub struct Namespace {
    _held: File,
}

impl Namespace {
    /// Moves this thread into a new namespace; `None`, said loudly, where that is not allowed.
    ///
    /// # Panics
    /// If it may be made, and cannot be.
    #[must_use]
    #[track_caller]
    pub fn enter(link: Link) -> Option<Namespace> {
        if !needs::is_root() || !needs::has("ip") || !needs::has("unshare") {
            return None;
        }
        let held = enter_new();
        ip(
            "-4",
            &format!(
                "link set lo up\n{}address add {} dev {INTERFACE}\n",
                link.commands(),
                HOST[0]
            ),
        );
        ip("-6", &format!("address add {} dev {INTERFACE} nodad\n", HOST[1]));
        ip("-4", &format!("link set {INTERFACE} up\n"));
        if link == Link::Bridge {
            leave_nothing(BRIDGED);
        }
        Some(Namespace { _held: held })
    }
}

/// As `ethtool -K INTERFACE tx off`: checksums are made before the device has a frame, and so it is cut before, too.
const LEAVE_NOTHING: &str = "\
import ctypes, fcntl, socket, struct, sys
ETHTOOL_STXCSUM, SIOCETHTOOL = 0x17, 0x8946
value = ctypes.create_string_buffer(struct.pack('II', ETHTOOL_STXCSUM, 0))
request = struct.pack('16sP16x', sys.argv[1].encode(), ctypes.addressof(value))
fcntl.ioctl(socket.socket(), SIOCETHTOOL, request)
";

fn leave_nothing(interface: &str) {
    let status = Command::new("python3").args(["-c", LEAVE_NOTHING, interface]).status();
    assert!(status.is_ok_and(|it| it.success()), "{interface} leaves checksums to others");
}

/// How often a closed socket's last bytes are sent again: about six seconds (tcp(7)) instead of minutes. Whom they were for is gone with
/// its card, and until then each holds its namespace, and that its neighbours' entries in a table all namespaces share, of 1,024 places:
/// once it is full, the next test's connections wait for an address nobody may learn.
const ORPHAN_RETRIES: &str = "4";

/// Sets one of the namespace's own settings of TCP or IPv4.
///
/// # Panics
/// If there is no such setting.
#[track_caller]
pub(crate) fn set(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/ipv4/{name}"), value).expect("root may, in its own namespace");
}

/// Makes a namespace and moves this thread into it.
///
/// # Panics
/// If that is not allowed.
#[track_caller]
pub(crate) fn enter_new() -> File {
    // It lives until its input ends; by then we are in, and hold what it made.
    let mut maker = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("unshare is there");
    let path = format!("/proc/{}/ns/net", maker.id());
    let ours = fs::read_link("/proc/thread-self/ns/net").expect("a namespace has a name");
    wait::until("the namespace is there", || {
        fs::read_link(&path).ok().filter(|theirs| *theirs != ours)
    });
    let namespace = File::open(&path).expect("who made it lives");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("root may");
    drop(maker.stdin.take());
    maker.wait().expect("our own child");
    set("tcp_orphan_retries", ORPHAN_RETRIES);
    namespace
}

/// Has ip(8) carry out `lines`, for one version of IP (`-4`, `-6`).
///
/// # Panics
/// With its words, if it refuses one.
#[track_caller]
pub(crate) fn ip(version: &str, lines: &str) {
    let mut command = Command::new("ip");
    command.args([version, "-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut ip = command.spawn().expect("ip is there");
    let mut input = ip.stdin.take().expect("it was asked for");
    input.write_all(lines.as_bytes()).expect("ip reads all of it");
    drop(input);
    let output = ip.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {version}: {said}{lines}");
}

/// Runs something in another new namespace, in a thread of its own, to which an interface of this one has been moved, where ip(8) gave it
/// an address.
///
/// # Panics
/// If that is not allowed.
#[track_caller]
pub fn beyond<T: Send + 'static>(
    interface: &'static str,
    address: &'static str,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let (tell, told) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _held = enter_new();
        tell.send(rustix::thread::gettid()).expect("it is waited for");
        may_go.recv().expect("the interface comes");
        ip("-4", &format!("link set lo up\naddress add {address} dev {interface}\n"));
        ip("-4", &format!("link set {interface} up\n"));
        run()
    });
    let its = told.recv().expect("root may").as_raw_pid();
    ip("-4", &format!("link set {interface} netns {its}\n"));
    go.send(()).expect("it waits");
    thread
}
