//! What is measured: `NAME=HOST:PORT[,pid=N[+N…]][,port=PORT]`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::Serialize;

use super::wire::PortName;

/// A server under measurement.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Target {
    /// What the report calls it.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Processes whose CPU is its cost.
    pub(crate) pids: Vec<u32>,
    /// Where the clients' frames for it go; `None`: the way of the whole run.
    #[serde(skip)]
    pub(crate) port: Option<PortName>,
}

/// Why a target is not understood.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum TargetError {
    /// No name.
    #[error("expected NAME=HOST:PORT[,pid=N[+N…]], for example plain=127.0.0.1:1883,pid=4711")]
    Form,
    /// The address.
    #[error("cannot resolve {0:?} (expected HOST:PORT, or PORT for 127.0.0.1)")]
    Address(String),
    /// A process number.
    #[error("{0:?} is not a process id")]
    Pid(String),
    /// Something after the address.
    #[error("{0:?} is not an attribute of a target (there are pid= and port=)")]
    Attribute(String),
    /// The port.
    #[error("{0}")]
    Port(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let (name, rest) = text.split_once('=').ok_or(TargetError::Form)?;
        let mut parts = rest.split(',');
        let address = parts.next().filter(|address| !address.is_empty());
        let address = address.ok_or(TargetError::Form)?;
        if name.is_empty() {
            return Err(TargetError::Form);
        }
        let mut target = Target::new(name, resolve(address)?);
        for part in parts {
            match part.split_once('=') {
                Some(("pid", list)) => {
                    for pid in list.split('+') {
                        let number = pid.parse().map_err(|_| TargetError::Pid(pid.to_owned()))?;
                        target.pids.push(number);
                    }
                }
                Some(("port", port)) => {
                    target.port = Some(port.parse().map_err(TargetError::Port)?);
                }
                _ => return Err(TargetError::Attribute(part.to_owned())),
            }
        }
        Ok(target)
    }
}

fn resolve(text: &str) -> Result<SocketAddr, TargetError> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let unknown = || TargetError::Address(text.to_owned());
    let mut found: Vec<_> = text.to_socket_addrs().map_err(|_| unknown())?.collect();
    // A name such as localhost has both; brokers listen on IPv4 more often.
    found.sort_by_key(|address| !address.is_ipv4());
    found.first().copied().ok_or_else(unknown)
}

impl Target {
    /// A target of no process, reached as the run's clients reach theirs.
    pub(crate) fn new(name: &str, address: SocketAddr) -> Target {
        Target { name: name.to_owned(), address, pids: Vec::new(), port: None }
    }

    /// The same server under another address.
    pub(crate) fn at(&self, ip: IpAddr) -> Target {
        Target { address: SocketAddr::new(ip, self.address.port()), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_name_an_address_and_processes() {
        let target: Target = "plain=127.0.0.1:1883,pid=12+13".parse().unwrap();
        assert_eq!(target.name, "plain");
        assert_eq!(target.address, SocketAddr::from(([127, 0, 0, 1], 1883)));
        assert_eq!(target.pids, [12, 13]);
    }

    #[test]
    fn a_target_may_have_a_way_of_its_own() {
        let target: Target = "card=10.0.0.1:1883,port=mem:/run/card,pid=7".parse().unwrap();
        assert_eq!(target.port, Some(PortName::Mem("/run/card".into())));
        assert_eq!(target.pids, [7]);
        let target: Target = "card=10.0.0.1:1883,port=packet:veth0".parse().unwrap();
        assert_eq!(target.port, Some(PortName::Packet("veth0".into())));
        let refused = "card=1883,port=veth0".parse::<Target>();
        assert!(matches!(refused, Err(TargetError::Port(_))), "{refused:?}");
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        let target: Target = "a=1884".parse().unwrap();
        assert_eq!(target.address, SocketAddr::from(([127, 0, 0, 1], 1884)));
        let moved = target.at(IpAddr::from([198, 18, 0, 1]));
        assert_eq!(moved.address, SocketAddr::from(([198, 18, 0, 1], 1884)));
    }

    #[test]
    fn an_ipv6_address_keeps_its_brackets() {
        let target: Target = "six=[::1]:1883".parse().unwrap();
        assert!(target.address.is_ipv6());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        assert_eq!(error("1883"), TargetError::Form);
        assert_eq!(error("=1883"), TargetError::Form);
        assert_eq!(error("a="), TargetError::Form);
        assert_eq!(error("a=1883,pid=x"), TargetError::Pid("x".into()));
        assert_eq!(error("a=1883,pid=1+"), TargetError::Pid(String::new()));
        assert_eq!(error("a=1883,cpu=1"), TargetError::Attribute("cpu=1".into()));
        assert_eq!(error("a=70000"), TargetError::Address("70000".into()));
    }
}
