//! What a kernel's socket is set to, at either end.

use rustix::net::sockopt;
use socket2::Socket;

/// As asked for by `SO_RCVBUF` and `SO_SNDBUF`: what a connection of our own has without being asked. Of it the kernel makes twice as much,
/// and tells half of that as its window.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// Linux' own choice of congestion control, whatever this machine's is.
const CONGESTION: &str = "cubic";

/// Bounded: its buffers have one size, and keep it. Otherwise they grow as the kernel sees fit.
pub(crate) fn set(socket: &Socket, is_bounded: bool) {
    if is_bounded {
        socket.set_recv_buffer_size(BUFFER_BYTES).expect("a size");
        socket.set_send_buffer_size(BUFFER_BYTES).expect("a size");
    }
    sockopt::set_tcp_congestion(socket, CONGESTION).expect("root may, and every kernel has it");
}
