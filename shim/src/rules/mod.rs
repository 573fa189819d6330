//! Which sockets go to the card. Pure: text and addresses in, a [`Verdict`] out.
//!
//! ```text
//! offload|kernel  listen|connect  ADDRESS[/LENGTH]:PORT[-PORT]  [prog=GLOB]      # first match wins
//! ```
//!
//! ADDRESS is IPv4, IPv6 in brackets, or `*`; PORT may be `*`. An IPv6 address that maps an IPv4 one also matches as that one. GLOB
//! knows `*` and `?`; it is held against the program's file name, or its whole path if the glob has a `/`. Files, variables
//! and sockets are other modules' business.

mod parse;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// Most rules of one file.
pub(crate) const RULES_MAX: usize = 1024;

/// Where a socket goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// To the card.
    Offload,
    /// It stays with the kernel.
    Kernel,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// A socket is to accept connections at an address.
    Listen,
    /// A socket is to connect to an address.
    Connect,
}

/// A set of addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Network {
    Any,
    V4 { address: Ipv4Addr, length: u8 },
    V6 { address: Ipv6Addr, length: u8 },
}

impl Network {
    fn contains(self, ip: IpAddr) -> bool {
        match (self, ip) {
            (Network::Any, _) => true,
            (Network::V4 { address, length }, IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                address.to_bits() & mask == ip.to_bits() & mask
            }
            (Network::V4 { .. }, IpAddr::V6(ip)) => {
                ip.to_ipv4_mapped().is_some_and(|ip| self.contains(ip.into()))
            }
            (Network::V6 { address, length }, IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                address.to_bits() & mask == ip.to_bits() & mask
            }
            (Network::V6 { .. }, IpAddr::V4(_)) => false,
        }
    }
}

/// One line.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Rule {
    verdict: Verdict,
    event: Event,
    network: Network,
    ports: RangeInclusive<u16>,
    program: Option<String>,
}

/// Rules in the order they are tried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    /// The verdict of the first rule that matches; the kernel's if none does. `program` is the path of the executable.
    pub(crate) fn verdict(&self, event: Event, address: SocketAddr, program: &str) -> Verdict {
        self.0
            .iter()
            .find(|rule| {
                rule.event == event
                    && rule.ports.contains(&address.port())
                    && rule.network.contains(address.ip())
                    && rule.program.as_deref().is_none_or(|glob| is_program(glob, program))
            })
            .map_or(Verdict::Kernel, |rule| rule.verdict)
    }

    /// These rules, then `later`.
    pub(crate) fn then(mut self, later: Rules) -> Rules {
        self.0.extend(later.0);
        self
    }
}

fn is_program(glob: &str, program: &str) -> bool {
    let subject = match glob.contains('/') {
        true => program,
        false => program.rsplit('/').next().unwrap_or(program),
    };
    glob_matches(glob.as_bytes(), subject.as_bytes())
}

/// Iterative matching with one level of back-tracking: linear in practice, never worse than glob × text.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&symbol) if symbol == b'?' || symbol == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((star_at, star_seen)) = star else { return false };
                at = star_at + 1;
                seen = star_seen + 1;
                star = Some((star_at, seen));
            }
        }
    }
    glob[at..].iter().all(|&symbol| symbol == b'*')
}
