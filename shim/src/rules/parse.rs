//! From text to [`Rules`].
//!
//! An error names file and line, what stands there, and what is expected. The first error ends the reading: half a rule set
//! is worse than none.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::{Event, Network, RULES_MAX, Rule, Rules, Verdict};

/// Why a text is no rule set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin}:{line}: `{found}`: expected {expected}")]
pub(crate) struct ParseError {
    /// The file's path, or the variable's name.
    pub(crate) origin: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// What stands there.
    pub(crate) found: String,
    /// What should.
    pub(crate) expected: &'static str,
}

/// A part of a line and what was expected of it.
type Fault<'a> = (&'a str, &'static str);

impl Rules {
    /// Reads a rules file. `origin` is its path, for errors.
    ///
    /// # Errors
    /// See [`ParseError`].
    pub(crate) fn parse(text: &str, origin: &str) -> Result<Rules, ParseError> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let rule = parse_rule(line)
                .and_then(|rule| match rules.len() < RULES_MAX {
                    true => Ok(rule),
                    false => Err((line, "no more than 1024 rules")),
                })
                .map_err(|fault| error(origin, number + 1, fault))?;
            rules.push(rule);
        }
        Ok(Rules(rules))
    }

    /// Reads a list of ports, `PORT[-PORT],…`: listeners on them are offloaded, at any address, in any program.
    ///
    /// # Errors
    /// See [`ParseError`].
    pub(crate) fn from_ports(text: &str, origin: &str) -> Result<Rules, ParseError> {
        let rule = |ports| Rule {
            verdict: Verdict::Offload,
            event: Event::Listen,
            network: Network::Any,
            ports,
            program: None,
        };
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| parse_ports(part).map(rule).map_err(|fault| error(origin, 1, fault)))
            .collect::<Result<Vec<Rule>, ParseError>>()
            .map(Rules)
    }
}

fn error(origin: &str, line: usize, (found, expected): Fault<'_>) -> ParseError {
    // A line can be anything; an error message has to stay readable.
    let found = found.chars().take(60).collect();
    ParseError { origin: origin.into(), line, found, expected }
}

fn parse_rule(line: &str) -> Result<Rule, Fault<'_>> {
    let mut words = line.split_whitespace();
    let mut next = |expected| words.next().ok_or((line, expected));
    let verdict = match next("offload or kernel")? {
        "offload" => Verdict::Offload,
        "kernel" => Verdict::Kernel,
        other => return Err((other, "offload or kernel")),
    };
    let event = match next("listen or connect after the verdict")? {
        "listen" => Event::Listen,
        "connect" => Event::Connect,
        other => return Err((other, "listen or connect")),
    };
    let place = next("ADDRESS[/LENGTH]:PORT[-PORT] after listen or connect")?;
    let (network, ports) = parse_place(place)?;
    let program = match words.next() {
        None => None,
        Some(word) => match word.strip_prefix("prog=") {
            Some(glob) if !glob.is_empty() => Some(glob.to_owned()),
            _ => return Err((word, "prog=GLOB, or nothing, after the address")),
        },
    };
    match words.next() {
        Some(word) => Err((word, "the end of the line")),
        None => Ok(Rule { verdict, event, network, ports, program }),
    }
}

fn parse_place(place: &str) -> Result<(Network, RangeInclusive<u16>), Fault<'_>> {
    const EXPECTED: &str =
        "ADDRESS[/LENGTH]:PORT[-PORT], such as 192.0.2.0/24:1883, [2001:db8::]/32:1883-1884 or *:*";
    let (network, ports) = place.rsplit_once(':').ok_or((place, EXPECTED))?;
    Ok((parse_network(network).ok_or((place, EXPECTED))?, parse_ports(ports)?))
}

fn parse_network(text: &str) -> Option<Network> {
    if text == "*" {
        return Some(Network::Any);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let length = |bits_max: u8| match length {
        None => Some(bits_max),
        Some(digits) => digits.parse::<u8>().ok().filter(|&bits| bits <= bits_max),
    };
    if let Some(inner) = address.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(Network::V6 { address, length: length(128)? });
    }
    let address: Ipv4Addr = address.parse().ok()?;
    Some(Network::V4 { address, length: length(32)? })
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, Fault<'_>> {
    const EXPECTED: &str = "a port from 0 to 65535, a range PORT-PORT, or *";
    if text == "*" {
        return Ok(0..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err((text, EXPECTED)),
    }
}
