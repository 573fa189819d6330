//! A broker's afternoon: clients, a card, and a broker that says what the test tells it to.
//!
//! `client` and `broker` put bytes in, `broker_gets` and `client_gets` take out what came of it.

use std::time::{Duration, Instant};

use super::packets::*;
use crate::mqtt::{ConnId, Core, CoreConfig, Limits, Reason, Trust};

pub(super) struct Scene {
    pub(super) core: Core,
    pub(super) now: Instant,
    next: u32,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(super) fn with_limits(limits: Limits) -> Self {
        Self::with_config(CoreConfig { trust: Trust::Suback, limits, ..CoreConfig::default() })
    }

    pub(super) fn with_config(config: CoreConfig) -> Self {
        Self { core: Core::new(config), now: Instant::now(), next: 0 }
    }

    pub(super) fn open(&mut self) -> ConnId {
        let conn = ConnId(self.next);
        self.next += 1;
        self.core.handle_open(conn, self.now);
        conn
    }

    pub(super) fn client(&mut self, conn: ConnId, bytes: impl AsRef<[u8]>) {
        self.core.handle_client(conn, bytes.as_ref(), self.now);
    }

    pub(super) fn broker(&mut self, conn: ConnId, bytes: impl AsRef<[u8]>) {
        self.core.handle_broker(conn, bytes.as_ref(), self.now);
    }

    pub(super) fn broker_gets(&mut self, conn: ConnId) -> Vec<u8> {
        let queue = self.core.to_broker(conn);
        let bytes = queue.as_slice().to_vec();
        queue.advance(bytes.len());
        bytes
    }

    pub(super) fn client_gets(&mut self, conn: ConnId) -> Vec<u8> {
        let outbox = self.core.outbox_mut(conn);
        let bytes = outbox.chunks().collect::<Vec<_>>().concat();
        assert_eq!(outbox.bytes(), bytes.len());
        outbox.advance(bytes.len());
        bytes
    }

    /// A connection on which nothing is waiting in either direction.
    #[track_caller]
    pub(super) fn assert_quiet(&mut self, conn: ConnId) {
        assert_eq!((self.broker_gets(conn), self.client_gets(conn)), (vec![], vec![]));
    }

    pub(super) fn sleep(&mut self, time: Duration) {
        self.now += time;
        self.core.handle_timeout(self.now);
    }

    /// A client whose CONNECT waits for its CONNACK.
    pub(super) fn knock(&mut self, connect: ConnectPacket<'_>) -> ConnId {
        let conn = self.open();
        self.client(conn, connect.bytes());
        assert_eq!(self.broker_gets(conn), connect.bytes());
        conn
    }

    pub(super) fn connect(&mut self, connect: ConnectPacket<'_>) -> ConnId {
        self.connect_with(connect, false)
    }

    pub(super) fn connect_with(
        &mut self,
        connect: ConnectPacket<'_>,
        session_present: bool,
    ) -> ConnId {
        let conn = self.knock(connect);
        let connack = connack(connect.level, session_present, 0, &[]);
        self.broker(conn, &connack);
        assert_eq!(self.client_gets(conn), connack);
        conn
    }

    /// Subscribes a version 3 client, down to the answered barrier.
    #[track_caller]
    pub(super) fn subscribe(&mut self, conn: ConnId, filter: &str) {
        self.client(conn, subscribe(1, &[filter]));
        assert_eq!(self.broker_gets(conn), [subscribe(1, &[filter]), PINGREQ.to_vec()].concat());
        self.broker(conn, [suback(1, &[0]), PINGRESP.to_vec()].concat());
        assert_eq!(self.client_gets(conn), suback(1, &[0]));
    }

    #[track_caller]
    pub(super) fn subscribe_v5(
        &mut self,
        conn: ConnId,
        properties: &[u8],
        filter: &str,
        options: u8,
    ) {
        self.client(conn, subscribe_v5(1, properties, filter, options));
        self.broker_gets(conn);
        self.broker(conn, [suback_v5(1, &[0]), PINGRESP.to_vec()].concat());
        assert_eq!(self.client_gets(conn), suback_v5(1, &[0]));
    }

    /// A version 3 client with one settled subscription.
    #[track_caller]
    pub(super) fn subscriber(&mut self, id: &str, filter: &str) -> ConnId {
        let conn = self.connect(v311(id));
        self.subscribe(conn, filter);
        conn
    }

    /// Both sides close, the client first.
    pub(super) fn close(&mut self, conn: ConnId) {
        self.core.handle_client_gone(conn, self.now);
        self.core.handle_broker_gone(conn, self.now);
        self.core.handle_close(conn, self.now);
    }

    /// The publisher sends this PUBLISH; the card distributes it and the broker hears nothing.
    #[track_caller]
    pub(super) fn card_takes(&mut self, publisher: ConnId, packet: impl AsRef<[u8]>) {
        let before = self.core.counters().clone();
        self.client(publisher, packet);
        let after = self.core.counters();
        assert_eq!(after.publishes_broker, before.publishes_broker, "{:?}", self.reasons());
        assert_eq!(after.publishes_card, before.publishes_card + 1);
        assert_eq!(self.broker_gets(publisher), []);
    }

    /// The publisher sends this PUBLISH; the broker gets it as it is, for this reason. What was injected behind it is
    /// returned.
    #[track_caller]
    pub(super) fn broker_takes(
        &mut self,
        publisher: ConnId,
        reason: Reason,
        packet: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let before = self.core.counters().clone();
        self.client(publisher, packet.as_ref());
        let after = self.core.counters();
        assert_eq!(after.publishes_card, before.publishes_card);
        assert_eq!(after.broker(reason), before.broker(reason) + 1, "{:?}", self.reasons());
        let sent = self.broker_gets(publisher);
        assert_eq!(sent.get(..packet.as_ref().len()), Some(packet.as_ref()));
        sent[packet.as_ref().len()..].to_vec()
    }

    fn reasons(&self) -> Vec<(&'static str, u64)> {
        let count = |reason: &Reason| (reason.label(), self.core.counters().broker(*reason));
        Reason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }
}
