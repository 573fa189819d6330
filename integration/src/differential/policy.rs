//! Access control lists, as mosquitto's `acl_file` has them (mosquitto.conf(5)): what the users may read and write.

use std::fmt;

use super::filter::matches;
use super::play::client_id;

/// What a rule lets a user do, or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    /// Receive.
    Read,
    /// Publish.
    Write,
    /// Both.
    ReadWrite,
    /// Neither.
    Deny,
}

/// One line for one client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Whom it is for.
    pub client: usize,
    /// What it says.
    pub verb: Verb,
    /// Of which topics.
    pub filter: String,
}

/// All rules. The default allows everything to everybody.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// `None`: everything is allowed.
    pub rules: Option<Vec<Rule>>,
}

impl Policy {
    /// Whether a client may do this. A Deny that matches wins; what nothing allows is forbidden.
    #[must_use]
    pub fn allows(&self, client: usize, verb: Verb, topic: &str) -> bool {
        let Some(rules) = &self.rules else { return true };
        let about = |rule: &&Rule| rule.client == client && matches(&rule.filter, topic);
        let has = |wanted: &dyn Fn(Verb) -> bool| {
            rules.iter().filter(about).any(|rule| wanted(rule.verb))
        };
        !has(&|it| it == Verb::Deny) && has(&|it| it == verb || it == Verb::ReadWrite)
    }
}

/// As the file has it.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rules) = &self.rules else {
            return out.write_str("pattern readwrite #\npattern readwrite $dev/#\n");
        };
        // Who cleans up behind the scenarios.
        out.write_str("user cleaner\ntopic readwrite #\ntopic readwrite $dev/#\n")?;
        for rule in rules {
            let verb = match rule.verb {
                Verb::Read => "read",
                Verb::Write => "write",
                Verb::ReadWrite => "readwrite",
                Verb::Deny => "deny",
            };
            write!(out, "user {}\ntopic {verb} {}\n", client_id(rule.client), rule.filter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_allows_is_forbidden_and_a_denial_wins() {
        let rule = |verb, filter: &str| Rule { client: 3, verb, filter: filter.to_owned() };
        let rules = vec![rule(Verb::Read, "a/#"), rule(Verb::Deny, "a/b"), rule(Verb::Write, "c")];
        let policy = Policy { rules: Some(rules) };
        assert!(policy.allows(3, Verb::Read, "a/c") && policy.allows(3, Verb::Write, "c"));
        assert!(!policy.allows(3, Verb::Read, "a/b") && !policy.allows(3, Verb::Write, "a/c"));
        assert!(!policy.allows(2, Verb::Read, "a/c"));
        assert!(Policy::default().allows(2, Verb::Write, "a"));
    }
}
