//! Where tests reach their brokers: over the loopback, or, with `MQTTSHIM_TEST_STACK=smoltcp`, through TCP/IP of the card's own.
//!
//! ```text
//! a network namespace of the test's own
//!   client ── 10.77.0.1:PORT ──┬── PORT is of a program on a card ──► mqN ═ TAP ═ dpu-server --stack smoltcp ──► its program
//!                              └── any other ────────────────────────► lo ──► the kernel's listener
//! ```
//!
//! The kernel and every card have the same addresses, and the port says who of them is meant. So both ends of a connection have the
//! names they have on the kernel's sockets alone, and a test that compares the two compares these as well.

use std::cell::Cell;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{namespace, needs, wait};

/// What chooses: `kernel`, as if it were not set, or `smoltcp`.
pub const CHOICE: &str = "MQTTSHIM_TEST_STACK";

const OWN4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// More of them, as the loopback has.
const MORE4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)];
/// What cards give out for port 0 and to connections they make, as the kernel would; it gives out others here, below those of
/// tests.
const CARDS_PORTS: &str = "32768-60999";
const KERNELS_PORTS: &str = "8000 19999";
/// Of routing rules: the lowest comes first. Ports of a program; ports cards give out, the newest card's before; what is the kernel's.
const OF_PROGRAMS: u32 = 10;
const OF_CARDS: u32 = 1_000;
const OF_THE_KERNEL: u32 = 2_000;
/// The first card's routing table.
const TABLE_FIRST: u32 = 100;

static NAMESPACE: OnceLock<File> = OnceLock::new();
/// The folders of cards; the place is the number of its TAP device.
static CARDS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Ports that are led to a card.
static LED: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// Whether cards have TCP/IP of their own.
///
/// # Panics
/// If the choice is none.
#[must_use]
pub fn is_own_stack() -> bool {
    match std::env::var(CHOICE).as_deref() {
        Err(_) | Ok("kernel") => false,
        Ok("smoltcp") => true,
        Ok(other) => panic!("{CHOICE}={other}: kernel or smoltcp"),
    }
}

/// The address of this host, for brokers to listen at and clients to connect to.
#[must_use]
pub fn host() -> Ipv4Addr {
    if is_own_stack() {
        enter();
        OWN4
    } else {
        Ipv4Addr::LOCALHOST
    }
}

/// The same of IPv6.
#[must_use]
pub fn host6() -> Ipv6Addr {
    if is_own_stack() {
        enter();
        OWN6
    } else {
        Ipv6Addr::LOCALHOST
    }
}

/// For programs under test: what they are to take for 127.0.0.1, and for ::1, if that is something else.
#[must_use]
pub fn environment() -> Vec<(&'static str, String)> {
    if is_own_stack() {
        vec![("TEST_HOST", host().to_string()), ("TEST_HOST6", host6().to_string())]
    } else {
        Vec::new()
    }
}

/// How the card of `folder` is to be started: on a TAP device of its own, or as it comes.
#[must_use]
pub fn card_arguments(folder: &Path) -> Vec<String> {
    if !is_own_stack() {
        return Vec::new();
    }
    enter();
    let number = number_of(folder).unwrap_or_else(|| add_card(folder));
    let mut arguments = vec!["--stack".to_owned(), "smoltcp".to_owned()];
    arguments.extend(["--port".to_owned(), format!("tap:{}", interface(number))]);
    let [second, third] = MORE4;
    for address in [OWN4, second, third] {
        arguments.extend(["--address".to_owned(), format!("{address}/24")]);
    }
    arguments.extend(["--address".to_owned(), format!("{OWN6}/64")]);
    arguments
}

/// Leads clients of `port` to the card of `folder`.
pub fn lead(port: u16, folder: &Path) {
    let Some(number) = number_of(folder) else { return };
    let mut led = LED.lock().unwrap_or_else(PoisonError::into_inner);
    if !led.contains(&port) {
        led.push(port);
        add_rules(OF_PROGRAMS, &port.to_string(), number);
    }
}

/// Moves this thread into the namespace. Threads and programs it starts from now on are there too.
fn enter() {
    thread_local!(static IS_IN: Cell<bool> = const { Cell::new(false) });
    if !IS_IN.replace(true) {
        let namespace = NAMESPACE.get_or_init(make);
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may");
    }
}

fn make() -> File {
    assert!(needs::is_root(), "{CHOICE}=smoltcp makes network namespaces: run it as root");
    let namespace = namespace::enter_new();
    namespace::ip(
        "-4",
        &format!(
            "link set lo up\naddress add {OWN4}/24 dev lo\n\
             rule add pref {OF_THE_KERNEL} lookup local\nrule del pref 0\n"
        ),
    );
    namespace::ip(
        "-6",
        &format!(
            "address add {OWN6}/128 dev lo nodad\n\
             rule add pref {OF_THE_KERNEL} lookup local\nrule del pref 0\n"
        ),
    );
    wait::until("there is a way to an address of IPv6", || {
        UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?.connect((OWN6, 9)).ok()
    });
    // What comes from a card has this host's own address.
    namespace::set("conf/all/accept_local", "1");
    namespace::set("conf/all/rp_filter", "0");
    namespace::set("conf/default/rp_filter", "0");
    namespace::set("ip_local_port_range", KERNELS_PORTS);
    namespace
}

fn number_of(folder: &Path) -> Option<usize> {
    let cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    cards.iter().position(|of| of == folder)
}

fn add_card(folder: &Path) -> usize {
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let number = cards.len();
    cards.push(folder.to_owned());
    let (interface, table) = (interface(number), table(number));
    namespace::ip(
        "-4",
        &format!(
            "tuntap add dev {interface} mode tap\nlink set {interface} up\n\
             route add 10.77.0.0/24 dev {interface} src {OWN4} table {table}\n"
        ),
    );
    namespace::ip("-6", &format!("route add fd77::/64 dev {interface} src {OWN6} table {table}\n"));
    add_rules(OF_CARDS - u32::try_from(number).expect("few cards"), CARDS_PORTS, number);
    number
}

fn add_rules(preference: u32, ports: &str, card: usize) {
    let rule = format!(
        "rule add pref {preference} iif lo ipproto tcp dport {ports} lookup {}\n",
        table(card)
    );
    namespace::ip("-4", &rule);
    namespace::ip("-6", &rule);
}

fn interface(card: usize) -> String {
    format!("mq{card}")
}

fn table(card: usize) -> u32 {
    TABLE_FIRST + u32::try_from(card).expect("few cards")
}
