//! File descriptors: how many there are, and how many sockets that makes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{ChannelChoice, StackConfig};

/// Descriptors that are not sockets: logs, epoll sets, the ring, sessions, scrapers.
const RESERVED: u64 = 128;
/// Fewer sockets than this serve nobody.
const SOCKETS_MIN: u64 = 16;
/// More sockets than one session can hold.
const SOCKETS_MAX: u64 = 1 << 20;

/// Why there are too few.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{sockets} sockets need {needed} file descriptors, and this process may have {available}: raise the hard limit \
     (ulimit -Hn, or LimitNOFILE= of systemd), or set limits.sockets_max to at most {possible}"
)]
pub struct TooFew {
    /// What was asked for.
    pub sockets: u64,
    /// Descriptors for that.
    pub needed: u64,
    /// What there is.
    pub available: u64,
    /// Sockets for that.
    pub possible: u64,
}

/// Raises the soft limit to the hard one and returns what holds then.
#[must_use]
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current.unwrap_or(u64::MAX);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => current.unwrap_or(u64::MAX),
    }
}

/// The number of sockets that `available` descriptors carry, or that was asked for. Connections of our own TCP/IP need none here.
///
/// # Errors
/// [`TooFew`] when that is more than there can be.
pub fn sockets(
    asked: Option<usize>,
    available: u64,
    channel: &ChannelChoice,
    stack: &StackConfig,
) -> Result<usize, TooFew> {
    // The agent inside this process holds the host's end of each socket, a stack of the kernel's the client's.
    let ends = [*channel == ChannelChoice::Local, *stack == StackConfig::Kernel];
    let each = ends.into_iter().filter(|is_here| *is_here).count() as u64;
    let possible = available.saturating_sub(RESERVED).checked_div(each).unwrap_or(SOCKETS_MAX);
    let possible = possible.min(SOCKETS_MAX);
    let sockets = asked.map_or(possible.max(SOCKETS_MIN), |asked| asked as u64);
    if sockets > possible {
        let needed = sockets * each + RESERVED;
        return Err(TooFew { sockets, needed, available, possible });
    }
    // At most SOCKETS_MAX.
    Ok(sockets as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortChoice;
    use crate::stack::smoltcp::BufferBytes;

    const LOCAL: ChannelChoice = ChannelChoice::Local;
    const KERNEL: StackConfig = StackConfig::Kernel;

    fn elsewhere() -> ChannelChoice {
        ChannelChoice::Emulated("x".into())
    }

    fn our_own() -> StackConfig {
        StackConfig::Smoltcp {
            port: PortChoice::Tap("mq0".to_owned()),
            addresses: Vec::new(),
            gateway: None,
            vlan: None,
            buffers: BufferBytes::default(),
        }
    }

    #[test]
    fn without_a_wish_there_are_as_many_sockets_as_descriptors_allow() {
        assert_eq!(sockets(None, 1128, &LOCAL, &KERNEL), Ok(500));
        assert_eq!(sockets(None, 1128, &elsewhere(), &KERNEL), Ok(1000));
        assert_eq!(sockets(None, u64::MAX, &LOCAL, &KERNEL), Ok(1 << 20));
    }

    #[test]
    fn connections_of_our_own_tcp_need_no_descriptor_of_the_card_s() {
        assert_eq!(sockets(None, 1128, &LOCAL, &our_own()), Ok(1000));
        assert_eq!(sockets(None, 1128, &elsewhere(), &our_own()), Ok(1 << 20));
    }

    #[test]
    fn a_wish_holds_up_to_the_last_descriptor() {
        assert_eq!(sockets(Some(500), 1128, &LOCAL, &KERNEL), Ok(500));
        let few = sockets(Some(501), 1128, &LOCAL, &KERNEL).unwrap_err();
        assert_eq!(few, TooFew { sockets: 501, needed: 1130, available: 1128, possible: 500 });
        let text = few.to_string();
        assert!(text.contains("1130") && text.contains("1128") && text.contains("500"), "{text}");
    }

    #[test]
    fn a_process_that_may_have_almost_nothing_is_refused() {
        let least = RESERVED + 2 * SOCKETS_MIN;
        assert!(sockets(None, least, &LOCAL, &KERNEL).is_ok());
        assert!(sockets(None, least - 1, &LOCAL, &KERNEL).is_err());
        assert!(sockets(None, 0, &LOCAL, &KERNEL).is_err());
    }
}
