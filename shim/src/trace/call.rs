//! The calls that are traced, by the names of the system calls that libc makes of them.

macro_rules! calls {
    ($($call:ident $name:literal)*) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Call {
            $(
                #[doc = concat!("`", $name, "`")]
                $call,
            )*
        }

        impl Call {
            pub(super) const ALL: [Call; CALLS] = [$(Call::$call),*];

            /// As it is written.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Call::$call => $name,)*
                }
            }
        }

        /// How many there are.
        pub(super) const CALLS: usize = [$($name),*].len();
    };
}

calls! {
    Accept "accept" Accept4 "accept4" Bind "bind" Close "close" CloseRange "close_range" Connect "connect" Dup "dup"
    Dup2 "dup2" Dup3 "dup3" EpollCtl "epoll_ctl" Fcntl "fcntl" Getpeername "getpeername" Getsockname "getsockname"
    Getsockopt "getsockopt" Ioctl "ioctl" Listen "listen" Preadv2 "preadv2" Pwritev2 "pwritev2" Read "read"
    Readv "readv" Recvfrom "recvfrom" Recvmmsg "recvmmsg" Recvmsg "recvmsg" Sendfile "sendfile" Sendmmsg "sendmmsg"
    Sendmsg "sendmsg" Sendto "sendto" Setsockopt "setsockopt" Shutdown "shutdown" Socket "socket"
    Socketpair "socketpair" Splice "splice" Write "write" Writev "writev"
}
