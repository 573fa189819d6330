//! Which stack, on which port, with which addresses: keys that mean something together only.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use smoltcp::wire::{IpAddress, IpCidr};

use super::{ConfigError, File, PortChoice, StackChoice, bound};
use crate::stack::smoltcp::BufferBytes;

/// The numbers of VLANs (IEEE 802.1Q): 0 is none, 4095 reserved.
const VLANS: RangeInclusive<u16> = 1..=4094;
/// Addresses of a card; smoltcp's room for them.
const ADDRESSES_MAX: usize = 8;

/// Where the connections live.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StackConfig {
    /// On the machine's own sockets.
    Kernel,
    /// On a stack of our own.
    Smoltcp {
        /// Where its frames come from.
        port: PortChoice,
        /// Its addresses, at least one.
        addresses: Vec<IpCidr>,
        /// Who takes what is for elsewhere.
        gateway: Option<IpAddr>,
        /// The VLAN whose tag its frames carry, on a port of an interface.
        vlan: Option<u16>,
        /// How much memory its connections' buffers take.
        buffers: BufferBytes,
    },
}

/// What the keys `stack`, `port`, `address`, `gateway`, `vlan` and those of buffers say together.
pub(super) fn stack(file: &File) -> Result<StackConfig, ConfigError> {
    let wrong = |key, reason: String| Err(ConfigError::Together { key, reason });
    if file.stack.unwrap_or(StackChoice::Kernel) == StackChoice::Kernel {
        let unused = [
            ("port", file.port.is_some()),
            ("address", file.address.is_some()),
            ("gateway", file.gateway.is_some()),
            ("vlan", file.vlan.is_some()),
            ("buffers_bytes_max", file.buffers_bytes_max.is_some()),
            ("receive_buffer_bytes", file.receive_buffer_bytes.is_some()),
            ("send_buffer_bytes", file.send_buffer_bytes.is_some()),
        ];
        return match unused.iter().find(|(_, is_said)| *is_said) {
            Some((key, _)) => {
                let reason = "is for stack smoltcp, and the stack is kernel: choose stack smoltcp, or leave it out";
                wrong(key, reason.to_owned())
            }
            None => Ok(StackConfig::Kernel),
        };
    }
    let Some(port) = file.port.clone() else {
        return wrong(
            "port",
            "is missing: stack smoltcp needs one, xdp:INTERFACE, tap:INTERFACE or mem:PATH"
                .to_owned(),
        );
    };
    let said = file.address.as_deref().unwrap_or_default();
    if said.is_empty() || said.len() > ADDRESSES_MAX {
        let reason = format!(
            "stack smoltcp needs 1 to {ADDRESSES_MAX} addresses, like 10.0.0.1/24, and has {}",
            said.len()
        );
        return wrong("address", reason);
    }
    let mut addresses: Vec<IpCidr> = Vec::new();
    for text in said {
        match address(text) {
            Ok(new) if addresses.iter().any(|own| own.address() == new.address()) => {
                return wrong("address", format!("{text:?} is there twice: leave one out"));
            }
            Ok(new) => addresses.push(new),
            Err(reason) => return wrong("address", reason),
        }
    }
    let gateway = file.gateway;
    if let Some(gateway) = gateway {
        if !addresses.iter().any(|own| own.contains_addr(&gateway.into())) {
            let reason =
                format!("{gateway} is in no network of the addresses: name a router that is");
            return wrong("gateway", reason);
        }
        if addresses.iter().any(|own| own.address() == gateway.into()) {
            let reason = format!("{gateway} is the card's own address: name the router's");
            return wrong("gateway", reason);
        }
    }
    let vlan = file.vlan;
    if let Some(number) = vlan {
        if !matches!(port, PortChoice::Xdp(_)) {
            return wrong("vlan", format!("goes with a port xdp:INTERFACE, not {port}"));
        }
        if !VLANS.contains(&number) {
            return wrong("vlan", format!("{number} is not within 1 to 4094"));
        }
    }
    Ok(StackConfig::Smoltcp { port, addresses, gateway, vlan, buffers: buffers(file)? })
}

fn buffers(file: &File) -> Result<BufferBytes, ConfigError> {
    let usual = BufferBytes::default();
    let within = |key, said: Option<usize>, usual, bounds: RangeInclusive<usize>| {
        bound(key, said, usual, *bounds.start() as u64, *bounds.end() as u64)
    };
    let (total, each) = (BufferBytes::TOTAL, BufferBytes::EACH);
    Ok(BufferBytes {
        total_max: within("buffers_bytes_max", file.buffers_bytes_max, usual.total_max, total)?,
        receive: within(
            "receive_buffer_bytes",
            file.receive_buffer_bytes,
            usual.receive,
            each.clone(),
        )?,
        send: within("send_buffer_bytes", file.send_buffer_bytes, usual.send, each)?,
    })
}

/// An address that a card can have, with the length of its network; or why it is none.
fn address(text: &str) -> Result<IpCidr, String> {
    let Ok(address) = text.parse::<IpCidr>() else {
        return Err(match text.parse::<IpAddr>() {
            Ok(lone) => {
                let length = if lone.is_ipv4() { 24 } else { 64 };
                format!("{text:?} lacks the length of its network, as in {lone}/{length}")
            }
            Err(_) => {
                format!("{text:?} is no address with the length of its network, like 10.0.0.1/24")
            }
        });
    };
    let host = address.address();
    let is_everybody = matches!(host, IpAddress::Ipv4(v4) if v4.is_broadcast());
    if !host.is_unicast() || IpAddr::from(host).is_loopback() || is_everybody {
        return Err(format!(
            "{text:?} cannot be a card's: it needs the address of one host, and no loopback's"
        ));
    }
    if let IpCidr::Ipv4(v4) = address
        && let Some(broadcast) = v4.broadcast()
        && (v4.address() == broadcast || v4.address() == v4.network().address())
    {
        return Err(format!(
            "{text:?} is the first or the last address of its network, which stand for all of it: choose one between them"
        ));
    }
    Ok(address)
}
