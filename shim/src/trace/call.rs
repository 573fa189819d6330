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
    Accept "accept" Accept4 "accept4" Bind "bind" Close "close" CloseRange "close_range" Connect "connect"
    Creat "creat" Dup "dup" Dup2 "dup2" Dup3 "dup3" EpollCreate "epoll_create" EpollCreate1 "epoll_create1"
    EpollCtl "epoll_ctl" EpollPwait "epoll_pwait" EpollPwait2 "epoll_pwait2" EpollWait "epoll_wait"
    Eventfd2 "eventfd2" Fcntl "fcntl" Getpeername "getpeername" Getsockname "getsockname" Getsockopt "getsockopt"
    InotifyInit "inotify_init" InotifyInit1 "inotify_init1" Ioctl "ioctl" Listen "listen" MemfdCreate "memfd_create"
    Openat "openat" Pipe2 "pipe2" Poll "poll" Ppoll "ppoll" Preadv2 "preadv2" Pselect6 "pselect6" Pwritev2 "pwritev2"
    Read "read" Readv "readv" Recvfrom "recvfrom" Recvmmsg "recvmmsg" Recvmsg "recvmsg" Sendfile "sendfile"
    Sendmmsg "sendmmsg" Sendmsg "sendmsg" Sendto "sendto" Setsockopt "setsockopt" Shutdown "shutdown"
    Signalfd4 "signalfd4" Socket "socket" Socketpair "socketpair" Splice "splice" TimerfdCreate "timerfd_create"
    Write "write" Writev "writev"
}
