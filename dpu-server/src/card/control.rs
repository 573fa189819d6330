//! What an operator asks of the card: sessions and routes of its brokers.

use std::time::Instant;

use super::{Card, Session};
use crate::attach::Attach;
use crate::control::{Listed, Order, Place, Reply, STEP, Which};
use crate::stack::Stack;

impl<A: Attach, S: Stack> Card<A, S> {
    /// Carries out one order, within the bounds of one pass.
    pub fn handle_order(&mut self, order: &Order, now: Instant) -> Reply {
        match order {
            Order::List(which, place) => self.list_sessions(*which, *place, now),
            Order::Forget(which, client_id) => {
                let brokers = self.meant(*which);
                Reply::Forgotten(brokers.map(|it| it.core.forget_session(client_id)).collect())
            }
            Order::ForgetAll(which, place) => self.forget_sessions(*which, *place),
            Order::FlushRoutes(which) => {
                Reply::Count(self.meant(*which).map(|it| it.core.flush_routes()).sum(), None)
            }
        }
    }

    fn meant(&mut self, which: Which) -> impl Iterator<Item = &mut Session> {
        self.sessions.iter_mut().map(|(_, it)| it).filter(move |it| it.is_meant(which))
    }

    /// The first broker meant at or behind this place, with the place.
    fn meant_from(&self, which: Which, from: Place) -> Option<Place> {
        let mut later =
            self.sessions.iter().filter(|(at, it)| *at >= from.broker && it.is_meant(which));
        let (at, _) = later.next()?;
        Some(if at == from.broker { from } else { Place { broker: at, session: 0 } })
    }

    fn list_sessions(&self, which: Which, from: Place, now: Instant) -> Reply {
        let Some(place) = self.meant_from(which, from) else {
            return Reply::Sessions(Vec::new(), None);
        };
        let broker = &self.sessions[place.broker];
        let (views, next) = broker.core.list_sessions(place.session, STEP, now);
        let list =
            |session| Listed { broker: broker.id.0, program: broker.program.clone(), session };
        Reply::Sessions(views.into_iter().map(list).collect(), self.behind(which, place, next))
    }

    fn forget_sessions(&mut self, which: Which, from: Place) -> Reply {
        let Some(place) = self.meant_from(which, from) else { return Reply::Count(0, None) };
        let core = &mut self.sessions[place.broker].core;
        let (count, next) = core.forget_sessions(place.session, STEP);
        Reply::Count(count, self.behind(which, place, next))
    }

    /// Where a walk goes on: in the same broker, or in the next.
    fn behind(&self, which: Which, place: Place, next: Option<usize>) -> Option<Place> {
        match next {
            Some(session) => Some(Place { session, ..place }),
            None => self.meant_from(which, Place { broker: place.broker + 1, session: 0 }),
        }
    }
}

impl Session {
    fn is_meant(&self, which: Which) -> bool {
        !self.is_ended && which.is_none_or(|number| self.id.0 == number)
    }
}
