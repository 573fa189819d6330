//! How a client's bytes reach the core: by a driver whose stack sends at once, or by one whose stack does not.

use std::collections::BTreeSet;

use dpu_server::mqtt::ConnId;

use super::World;

impl World {
    /// Lets the core have a client's bytes, as a driver does whose stack sends at once, or as one whose stack does not.
    pub(super) fn hear(&mut self, conn: u32, bytes: &[u8]) {
        if self.rng.percent(50) {
            self.core.handle_client(ConnId(conn), bytes, self.now);
            return;
        }
        self.core.handle_client_directly(ConnId(conn), bytes, self.now);
        let deliveries: Vec<(ConnId, Vec<u8>)> =
            self.core.direct().iter().map(|(to, _, bytes)| (to, bytes.to_vec())).collect();
        let mut full: BTreeSet<u32> = self.clientless.clone();
        let mut refused = Vec::new();
        for (place, (to, bytes)) in deliveries.into_iter().enumerate() {
            if self.rng.percent(20) {
                full.insert(to.0);
            }
            if full.contains(&to.0) {
                refused.push(place as u32);
            } else if let Some(&client) = self.open.get(&to.0) {
                self.tell("past its outbox from the card", to.0, &bytes);
                self.clients[client].receive(to.0, &bytes, &mut self.model);
            }
        }
        self.core.settle_direct(&refused, self.now);
    }
}
