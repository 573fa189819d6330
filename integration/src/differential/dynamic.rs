//! The same rules as [`Policy`] has them, in mosquitto's dynamic-security plugin: a role a client, changed by messages to the broker.
//!
//! A change of a role ends the connections of whoever has it; a change of the defaults alone ends none.

use std::collections::BTreeMap;
use std::path::Path;

use super::play::client_id;
use super::policy::{Policy, Rule, Verb};
use crate::mqtt::{Client, Login, Message};

/// Where the plugin takes commands.
const CONTROL: &str = "$CONTROL/dynamic-security/v1";
/// Clients of a scenario at most.
const CLIENTS: usize = 10;
/// "secret", as `mosquitto_ctrl dynsec init` writes it.
const SECRET: &str = r#""password":"MCBfam+ktZ9634IZ7j0ghNeR5dODcDTLow6iPe3UoUBv9U58dItCHP8bzjHbeVjt6Stg+s/joBtFtuTu4JXULA==","salt":"ja2D0Pwc3Vh6Ibks","iterations":101"#;
const SEND: &str = "publishClientSend";
const RECEIVE: &str = "publishClientReceive";

/// What a broker begins with, which is [`Policy::default`].
pub(super) fn start() -> String {
    let clients: Vec<String> = (0..CLIENTS).map(client_id).collect();
    let names = || ["admin", "cleaner"].into_iter().chain(clients.iter().map(String::as_str));
    let client =
        |name| format!(r#"{{"username":"{name}",{SECRET},"roles":[{{"rolename":"{name}"}}]}}"#);
    let role = |name| {
        let topics: &[&str] = match name {
            "admin" => &["$CONTROL/#"],
            "cleaner" => &["#", "$dev/#"],
            _ => &[],
        };
        let acl = |acl_type: &str, topic: &str| {
            format!(r#"{{"acltype":"{acl_type}","topic":"{topic}","allow":true}}"#)
        };
        let acls = topics.iter().flat_map(|topic| [acl(SEND, topic), acl(RECEIVE, topic)]);
        let acls = acls.collect::<Vec<_>>().join(",");
        format!(r#"{{"rolename":"{name}","acls":[{acls}]}}"#)
    };
    let clients = names().map(client).collect::<Vec<_>>().join(",");
    let roles = names().map(role).collect::<Vec<_>>().join(",");
    let default =
        format!(r#"{{"{SEND}":true,"{RECEIVE}":true,"subscribe":true,"unsubscribe":true}}"#);
    format!(r#"{{"defaultACLAccess":{default},"clients":[{clients}],"roles":[{roles}]}}"#)
}

/// Configuration that loads the plugin.
pub(super) fn config(plugin: &Path, file: &Path) -> String {
    format!("\nplugin {}\nplugin_opt_config_file {}\n", plugin.display(), file.display())
}

/// Has the broker follow other rules; it does when this returns.
///
/// # Panics
/// If the broker does not answer.
#[track_caller]
pub(super) fn change(port: u16, from: &Policy, to: &Policy) {
    let (mut admin, _) = Client::connect(port, &Login::new("admin").credentials("admin", "secret"));
    let commands = commands(from, to).join(",");
    admin.publish(&Message::new(CONTROL, format!("{{\"commands\":[{commands}]}}")).qos(1));
    admin.disconnect();
}

/// Whether a change of the rules changes the role of a client.
pub(super) fn is_kicked(client: usize, from: &Policy, to: &Policy) -> bool {
    entries(client, from) != entries(client, to)
}

fn commands(from: &Policy, to: &Policy) -> Vec<String> {
    let mut commands = Vec::new();
    for client in (0..CLIENTS).filter(|&client| is_kicked(client, from, to)) {
        let acl = |acl_type: &str, topic: &str| {
            let role = client_id(client);
            format!(r#""rolename":"{role}","acltype":"{acl_type}","topic":"{topic}""#)
        };
        for (acl_type, topic) in entries(client, from).keys() {
            commands.push(format!(r#"{{"command":"removeRoleACL",{}}}"#, acl(acl_type, topic)));
        }
        for ((acl_type, topic), allow) in entries(client, to) {
            let (acl, priority) = (acl(acl_type, &topic), u8::from(!allow));
            let more = format!(r#""priority":{priority},"allow":{allow}"#);
            commands.push(format!(r#"{{"command":"addRoleACL",{acl},{more}}}"#));
        }
    }
    let is_open = to.rules.is_none();
    for acl_type in [SEND, RECEIVE] {
        let default = format!(r#"{{"acltype":"{acl_type}","allow":{is_open}}}"#);
        commands.push(format!(r#"{{"command":"setDefaultACLAccess","acls":[{default}]}}"#));
    }
    commands
}

/// What the role of a client says of each topic filter; a denial wins.
fn entries(client: usize, policy: &Policy) -> BTreeMap<(&'static str, String), bool> {
    let mut entries = BTreeMap::new();
    let rules = policy.rules.iter().flatten().filter(|rule| rule.client == client);
    for Rule { verb, filter, .. } in rules {
        for (acl_type, verbs) in [(SEND, Verb::Write), (RECEIVE, Verb::Read)] {
            if [verbs, Verb::ReadWrite, Verb::Deny].contains(verb) {
                let entry = entries.entry((acl_type, filter.clone())).or_insert(true);
                *entry &= *verb != Verb::Deny;
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_defaults_leaves_everybody_connected() {
        let closed = Policy { rules: Some(Vec::new()) };
        assert!((0..CLIENTS).all(|client| !is_kicked(client, &Policy::default(), &closed)));
        let commands = commands(&Policy::default(), &closed);
        assert!(commands.iter().all(|it| it.contains("setDefault") && it.contains("false")));
    }

    #[test]
    fn a_denial_wins_over_a_permission_for_the_same_filter() {
        let rule = |verb| Rule { client: 1, verb, filter: "a".to_owned() };
        let policy = Policy { rules: Some(vec![rule(Verb::Deny), rule(Verb::Read)]) };
        let entries = entries(1, &policy);
        assert!(entries.len() == 2 && entries.values().all(|allow| !allow));
        assert!(is_kicked(1, &Policy::default(), &policy) && !is_kicked(2, &policy, &policy));
    }
}
