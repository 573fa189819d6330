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
                wrong(key, "goes with stack smoltcp; the kernel has its own".to_owned())
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
            "stack smoltcp needs 1 to {ADDRESSES_MAX} addresses, like 10.0.0.1/24; {} are said",
            said.len()
        );
        return wrong("address", reason);
    }
    let mut addresses = Vec::new();
    for text in said {
        match text.parse::<IpCidr>() {
            Ok(address) if is_one_host(address.address()) => addresses.push(address),
            _ => {
                return wrong(
                    "address",
                    format!(
                        "{text:?} is no host's address with the length of its network, like 10.0.0.1/24"
                    ),
                );
            }
        }
    }
    let gateway = file.gateway;
    if let Some(gateway) = gateway
        && !addresses.iter().any(|own| own.contains_addr(&gateway.into()))
    {
        return wrong("gateway", format!("{gateway} is in no network of the addresses"));
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

fn is_one_host(address: IpAddress) -> bool {
    let is_everybody = matches!(address, IpAddress::Ipv4(v4) if v4.is_broadcast());
    address.is_unicast() && !IpAddr::from(address).is_loopback() && !is_everybody
}
