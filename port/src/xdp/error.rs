//! Why there is no AF_XDP port, and what to do about it.

use rustix::io::Errno;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no such name.
    #[error("{0:?} is no name of an interface: 1 to 15 bytes")]
    Name(String),
    /// There is no such interface.
    #[error("there is no interface {name}: {errno}; ip link shows those there are")]
    Interface {
        /// Its name.
        name: String,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// Not for this user.
    #[error(
        "AF_XDP is refused to this user ({what}: {errno}); it takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, which root has. \
         --stack kernel needs none of them"
    )]
    Rights {
        /// What was refused.
        what: &'static str,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// The kernel cannot.
    #[error(
        "this kernel has no AF_XDP ({what}: {errno}); it takes Linux 5.9 with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL. \
         --stack kernel needs neither"
    )]
    Kernel {
        /// What was refused.
        what: &'static str,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// Somebody else's program is there.
    #[error(
        "another XDP program is on {name}: {errno}. If that is another dpu-server's, stop it, or let it have this address too, as \
         one more --address; otherwise ip link set dev {name} xdp off may take it away"
    )]
    Taken {
        /// The interface.
        name: String,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// Neither the driver nor the kernel runs a program there.
    #[error(
        "no XDP program can run on {name}: {errno}; tap:INTERFACE, or --stack kernel, needs none"
    )]
    Attach {
        /// The interface.
        name: String,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// A queue cannot be served; without it, connections would be lost at random.
    #[error("queue {queue} of {name} cannot be served: {errno}; {advice}")]
    Queue {
        /// The interface.
        name: String,
        /// Which one.
        queue: u32,
        /// What the system said.
        #[source]
        errno: Errno,
        /// What to do.
        advice: &'static str,
    },
    /// More queues than we serve.
    #[error("{name} has more than {max} queues; ethtool -L {name} combined {max} gives it fewer")]
    Queues {
        /// The interface.
        name: String,
        /// As many are served.
        max: u32,
    },
    /// It does not say what it is.
    #[error("cannot ask the interface {name} for its {what}: {errno}")]
    Ask {
        /// Its name.
        name: String,
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        errno: Errno,
    },
    /// The interface carries too little.
    #[error(
        "{name} has an MTU of {mtu}; less than {min} carries no IPv6: ip link set dev {name} mtu 1500"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU, in bytes.
        mtu: usize,
        /// The least, in bytes.
        min: usize,
    },
    /// No set of descriptors.
    #[error("cannot wait for the queues of an interface: {0}")]
    Wait(#[source] Errno),
}

/// What a refusal of something that any interface could do means.
pub(super) fn refused(what: &'static str, errno: Errno) -> XdpError {
    match errno {
        Errno::PERM | Errno::ACCESS => XdpError::Rights { what, errno },
        _ => XdpError::Kernel { what, errno },
    }
}
