//! What sending to a connection will look at, asked for ahead: the socket leads to the connection.

use super::tcp::Tcp;
use crate::prefetch::{soon, soon_at, soon_bytes};
use crate::stack::Key;

/// The beginning of a connection that a delivery looks at, in bytes.
const HOT_BYTES: usize = 448;

impl Tcp {
    /// Asks for the socket that a key names.
    pub(super) fn expect_socket(&self, key: Key) {
        self.sockets.expect(key);
    }

    /// Asks for the connections of sockets that were asked for.
    pub(super) fn expect_connections(&self, keys: impl Iterator<Item = Key>) {
        for key in keys {
            if let Some(id) = self.sockets.connection(key)
                && let Some(connection) = self.connections.get(id as usize)
            {
                soon(connection);
            }
        }
    }

    /// Asks for what [`Tcp::deliver`] looks at, and if `is_next`, for where the message goes.
    #[inline]
    pub(super) fn expect_delivery(&self, key: Key, is_next: bool) {
        let Some(id) = self.sockets.connection(key) else { return };
        let Some(connection) = self.connections.get(id as usize) else { return };
        if is_next {
            soon_at(connection.socket.send_place());
        } else {
            soon_bytes(connection, HOT_BYTES);
        }
    }
}
