//! Whose names connections have, for whoever binds one (`bind(2)`, EADDRINUSE).
//!
//! All connections of a listener to one address have the same name, so there are few, whatever the number of connections.

use std::collections::HashMap;

use super::listener::Name;

/// By port: names, and of how many connections each is.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<u16, Vec<(Name, usize)>>);

impl Names {
    /// A connection has the name from now on.
    pub(super) fn add(&mut self, name: &Name) {
        let of_port = self.0.entry(name.address.port()).or_default();
        match of_port.iter_mut().find(|(it, _)| it == name) {
            Some((_, count)) => *count += 1,
            None => of_port.push((*name, 1)),
        }
    }

    /// A connection that had the name is over.
    pub(super) fn remove(&mut self, name: &Name) {
        let port = name.address.port();
        let Some(of_port) = self.0.get_mut(&port) else { return };
        let Some(at) = of_port.iter().position(|(it, _)| it == name) else { return };
        of_port[at].1 -= 1;
        if of_port[at].1 == 0 {
            of_port.swap_remove(at);
        }
        if of_port.is_empty() {
            self.0.remove(&port);
        }
    }

    /// Whether `name` cannot be bound beside one of these.
    pub(super) fn collide_with(&self, name: &Name) -> bool {
        let mut of_port = self.0.get(&name.address.port()).into_iter().flatten();
        of_port.any(|(it, _)| it.collides(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::unbound(text.parse().unwrap(), 0)
    }

    #[test]
    fn a_name_is_taken_until_its_last_connection_is_over() {
        let mut names = Names::default();
        let (one, any) = (name("10.0.0.1:1883"), name("0.0.0.0:1883"));
        names.add(&one);
        names.add(&one);
        names.remove(&one);
        assert!(names.collide_with(&one) && names.collide_with(&any));
        assert!(!names.collide_with(&name("10.0.0.2:1883")));
        assert!(!names.collide_with(&name("10.0.0.1:1884")));
        names.remove(&one);
        assert!(!names.collide_with(&any));
        assert!(names.0.is_empty(), "nothing is kept of what is over");
    }

    #[test]
    fn names_that_differ_in_what_they_allow_are_told_apart() {
        let mut names = Names::default();
        let strict = name("10.0.0.1:1883");
        let kind = Name { may_reuse: true, ..strict };
        names.add(&strict);
        names.add(&kind);
        assert!(names.collide_with(&kind), "because of the strict one");
        names.remove(&strict);
        assert!(!names.collide_with(&kind));
    }
}
