//! A pair of virtual interfaces made for one run and removed after it.
//!
//! ```text
//! server's end `mqb<pid>a0`, 198.18.x.1/24 ══════ clients' end `mqb<pid>b0`, up, no address
//! ```
//!
//! Both ends are in this process's network namespace. 198.18.0.0/15 is set aside for benchmarks (RFC 2544, RFC 6890).
//! `ip` of iproute2 does the work; `<pid>` is hexadecimal. Needs CAP_NET_ADMIN. The pair goes with [`VethPair`]'s `Drop`; whoever is
//! ended by SIGKILL leaves it behind: `ip link del mqb<pid>a0`.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The pair.
#[derive(Debug)]
pub(crate) struct VethPair {
    /// Name of the server's end.
    pub(crate) server_end: String,
    /// Name of the clients' end.
    pub(crate) client_end: String,
    /// Address of the server's end.
    pub(crate) server: Ipv4Addr,
    /// Free address for the clients.
    pub(crate) client: Ipv4Addr,
}

impl VethPair {
    /// Makes the pair and sets both ends up. The server's has an address.
    pub(crate) fn create() -> Result<VethPair> {
        let pair = VethPair::create_bare(0)?;
        ip(&["addr", "add", &format!("{}/24", pair.server), "dev", &pair.server_end])?;
        Ok(pair)
    }

    /// The same for somebody who takes the frames past the kernel, which gets no address, as pair 0 and others by number.
    pub(crate) fn create_bare(number: u8) -> Result<VethPair> {
        let pid = std::process::id();
        let [_, _, high, low] = pid.to_be_bytes();
        let subnet = |host| Ipv4Addr::new(198, 18 + (high & 1), low, host + 4 * number);
        // 15 bytes at most (IFNAMSIZ).
        let [server_end, client_end] = ["a", "b"].map(|end| format!("mqb{:x}{end}{number}", pid));
        ip(&["link", "add", &server_end, "type", "veth", "peer", "name", &client_end])
            .context("--setup-veth makes a pair of interfaces, which needs root")?;
        // From here on the pair exists, and Drop removes it if a later step fails.
        let pair = VethPair { server_end, client_end, server: subnet(1), client: subnet(2) };
        let (a, b) = (pair.server_end.as_str(), pair.client_end.as_str());
        for end in [a, b] {
            // No IPv6 chatter; harmless to go without where IPv6 is off.
            let _ = ip(&["link", "set", "dev", end, "addrgenmode", "none"]);
        }
        ip(&["link", "set", "dev", a, "up"])?;
        ip(&["link", "set", "dev", b, "up"])?;
        Ok(pair)
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        if let Err(error) = ip(&["link", "del", "dev", &self.server_end]) {
            eprintln!("mqttshim: could not remove {}: {error:#}", self.server_end);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot run `ip` (Debian package iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
