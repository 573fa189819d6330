//! What sending to a connection will look at, asked for ahead: the socket leads to the connection.

use super::tcp::Tcp;
use crate::stack::Key;
use mqttshim_port::prefetch::soon;

impl Tcp {
    /// Asks for the socket that a key names.
    pub(super) fn expect_socket(&self, key: Key) {
        self.sockets.expect(key);
    }

    /// Asks for the connections of sockets that were asked for.
    pub(super) fn expect_connections(&self, keys: impl Iterator<Item = Key>) {
        for key in keys {
            if let Some(id) = self.sockets.connection(key)
                && let Some(connection) = self.connections.get(id)
            {
                soon(connection);
            }
        }
    }

    /// Asks for what [`Tcp::deliver`] looks at.
    #[inline]
    pub(super) fn expect_delivery(&self, key: Key) {
        if let Some(id) = self.sockets.connection(key) {
            soon(self.connections.lane(id));
        }
    }
}
