//! Twelve policies of mosquitto, and how each changes at run time: by observation nothing reaches who may not have it, from the
//! observable change on (SIGHUP, `$CONTROL`, a new connection), and who may have it misses nothing.
//!
//! A case is a stage, then phases: everybody publishes everywhere, many times, and each reader must have got exactly what the
//! phase grants. In between the policy changes. The card has to take its share, or nothing would be said about it.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::process::Command;

use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Login, Message, Process, needs, wait,
};

/// Messages of each publisher on each topic in a batch.
const ROUNDS: usize = 50;
/// Batches of a phase: the first ones teach the card, and after one that taught nothing it waits before it looks again.
const BATCHES_MAX: usize = 100;
/// What share of a phase's messages the card has to take in the end, of those that somebody gets.
const SHARE_MIN: f64 = 0.5;
/// Looks that have to find the card's numbers the same.
const STILL: usize = 2;

/// A broker on a card that observes, and its clients.
struct Stage {
    broker: Broker,
    card: Card,
    folder: Folder,
    publishers: Vec<(&'static str, Client)>,
    readers: Vec<(&'static str, Client)>,
    topics: &'static [&'static str],
    round: usize,
}

fn login(id: &str) -> Login {
    Login::new(id).credentials(id, "secret")
}

impl Stage {
    /// `config` names the rules' file as `RULES`.
    #[track_caller]
    fn start(config: &str, rules: &str, topics: &'static [&'static str]) -> Stage {
        let folder = Folder::new();
        let rules = folder.write("rules", rules).display().to_string();
        let config =
            config.replace("RULES", &rules).replace("FOLDER", &folder.path().display().to_string());
        let card = Card::start_with(&folder, &["--trust", "observed"]);
        let setup = BrokerSetup {
            session: Some(card.session()),
            config: &config,
            ..BrokerSetup::default()
        };
        let broker = Broker::launch(&folder, &setup);
        let mut stage = Stage {
            broker,
            card,
            folder,
            publishers: Vec::new(),
            readers: Vec::new(),
            topics,
            round: 0,
        };
        stage.broker.process.await_log("is served by the card");
        stage
    }

    #[track_caller]
    fn with_acl(rules: &str, topics: &'static [&'static str]) -> Stage {
        Stage::start("acl_file RULES", rules, topics)
    }

    #[track_caller]
    fn publisher(mut self, id: &'static str) -> Stage {
        let (client, _) = Client::connect(self.broker.port(), &login(id));
        self.publishers.push((id, client));
        self
    }

    #[track_caller]
    fn reader(mut self, id: &'static str) -> Stage {
        let (client, _) = Client::connect(self.broker.port(), &login(id));
        self.seat(id, client);
        self
    }

    /// Has a reader subscribe to everything.
    #[track_caller]
    fn seat(&mut self, id: &'static str, mut client: Client) {
        client.subscribe("#", 0);
        self.readers.push((id, client));
    }

    /// Other rules, by SIGHUP.
    #[track_caller]
    fn reload(&mut self, rules: &str) {
        self.folder.write("rules", rules);
        self.signal();
    }

    #[track_caller]
    fn signal(&mut self) {
        let reloads = |broker: &Broker| broker.process.log().matches("Reloading config").count();
        let before = reloads(&self.broker);
        self.broker.reload();
        let what = "the broker reads its files again";
        wait::until(what, || (reloads(&self.broker) > before).then_some(()));
        // It answers when it has.
        if let Some((_, client)) = self.publishers.first_mut() {
            client.ping().unwrap();
        }
    }

    /// Everybody publishes everywhere, until the card has taken its share of what somebody gets. `may(publisher, reader, topic)` says
    /// who gets what.
    #[track_caller]
    fn phase(&mut self, name: &str, may: impl Fn(&str, &str, &str) -> bool) {
        // A topic that nobody gets is the broker's for ever, and what comes behind it waits.
        let mut topics = self.topics.iter();
        let is_wanted = |topic: &str| {
            let readers = |publisher| self.readers.iter().any(|(it, _)| may(publisher, it, topic));
            self.publishers.iter().any(|(publisher, _)| readers(publisher))
        };
        let share = if topics.all(|topic| is_wanted(topic)) { SHARE_MIN } else { 0.0 };
        let mut wanted = 0.0;
        let before = self.by_card();
        for _ in 0..BATCHES_MAX {
            wanted += self.publish(&may);
            self.look(name, &may);
            self.round += ROUNDS;
            let taken = self.by_card() - before;
            if taken >= share * wanted {
                eprintln!("acl: {name}: {taken} of {wanted} by the card");
                return;
            }
        }
        panic!(
            "{name}: the card takes less than its share of {wanted}\n{}",
            self.card.metrics().text()
        );
    }

    /// One batch; how many messages somebody gets.
    fn publish(&mut self, may: &impl Fn(&str, &str, &str) -> bool) -> f64 {
        let mut wanted = 0;
        for round in self.round..self.round + ROUNDS {
            for (publisher, client) in &mut self.publishers {
                for topic in self.topics {
                    client.publish(&Message::new(topic, format!("{publisher} {round}")));
                    let mut readers = self.readers.iter();
                    wanted += u32::from(readers.any(|(reader, _)| may(publisher, reader, topic)));
                }
                client.ping().unwrap();
            }
        }
        f64::from(wanted)
    }

    /// What every reader got of the last batch.
    #[track_caller]
    fn look(&mut self, name: &str, may: &impl Fn(&str, &str, &str) -> bool) {
        let rounds = self.round..self.round + ROUNDS;
        for (reader, client) in &mut self.readers {
            let mut got: Vec<(String, String)> = client
                .messages_so_far()
                .into_iter()
                .filter(|message| !message.topic.starts_with('$'))
                .map(|message| (message.topic, String::from_utf8(message.payload).unwrap()))
                .collect();
            let mut expected: Vec<(String, String)> = Vec::new();
            for (publisher, _) in &self.publishers {
                for topic in self.topics.iter().filter(|topic| may(publisher, reader, topic)) {
                    let payloads = rounds.clone().map(|round| format!("{publisher} {round}"));
                    expected.extend(payloads.map(|payload| ((*topic).to_owned(), payload)));
                }
            }
            got.sort();
            expected.sort();
            let beyond = got.iter().find(|it| !expected.contains(it));
            assert_eq!(beyond, None, "{name}: {reader} must not have this");
            let missing = expected.iter().find(|it| !got.contains(it));
            assert_eq!(missing, None, "{name}: {reader} misses this");
            assert_eq!(got.len(), expected.len(), "{name}: {reader} has something twice");
        }
    }

    /// PUBLISHes the card took. All are over, so numbers that stand still are these.
    fn by_card(&self) -> f64 {
        let mut last = (f64::NAN, 0);
        wait::until("the card's numbers stand still", || {
            let now = self.card.metrics().by_card();
            last = (now, if (now - last.0).abs() < 0.5 { last.1 + 1 } else { 0 });
            (last.1 == STILL).then_some(now)
        })
    }
}

const TOPICS: &[&str] = &["a/open", "a/secret", "b"];

#[test]
fn acl_per_user_read_rules_swap_at_a_reload() {
    needs!("mosquitto");
    let rules = |alice: &str, bob: &str| {
        format!(
            "user pub\ntopic readwrite #\nuser alice\ntopic read {alice}\nuser bob\ntopic read {bob}\n"
        )
    };
    let mut stage =
        Stage::with_acl(&rules("a/#", "b"), TOPICS).publisher("pub").reader("alice").reader("bob");
    stage.phase("first", |_, reader, topic| (reader == "alice") == topic.starts_with("a/"));
    stage.reload(&rules("b", "a/#"));
    stage.phase("swapped", |_, reader, topic| (reader == "alice") == (topic == "b"));
    stage.reload(&rules("a/#", "b"));
    stage.phase("back", |_, reader, topic| (reader == "alice") == topic.starts_with("a/"));
}

#[test]
fn acl_a_denial_comes_and_goes() {
    needs!("mosquitto");
    let open = "user pub\ntopic readwrite #\nuser alice\ntopic read #\n";
    let mut stage = Stage::with_acl(open, TOPICS).publisher("pub").reader("alice");
    stage.phase("open", |_, _, _| true);
    stage.reload(&format!("{open}topic deny a/secret\n"));
    stage.phase("denied", |_, _, topic| topic != "a/secret");
    stage.reload(open);
    stage.phase("open again", |_, _, _| true);
}

#[test]
fn acl_patterns_of_the_user_name() {
    needs!("mosquitto");
    let topics = &["in/alice", "in/bob", "out/alice"];
    let rules = "user pub\ntopic write #\npattern read in/%u\n";
    let mut stage = Stage::with_acl(rules, topics).publisher("pub").reader("alice").reader("bob");
    stage.phase("in", |_, reader, topic| topic.strip_prefix("in/") == Some(reader));
    stage.reload("user pub\ntopic write #\npattern read out/%u\n");
    stage.phase("out", |_, reader, topic| topic.strip_prefix("out/") == Some(reader));
}

#[test]
fn acl_patterns_of_the_client_identifier() {
    needs!("mosquitto");
    let topics = &["in/alice", "in/bob"];
    let mut stage = Stage::with_acl("pattern read in/%c\npattern write #\n", topics);
    stage = stage.publisher("pub").reader("alice").reader("bob");
    stage.phase("one's own", |_, reader, topic| topic.strip_prefix("in/") == Some(reader));
    stage.reload("pattern read in/+\npattern write #\n");
    stage.phase("everybody's", |_, _, _| true);
}

#[test]
fn acl_a_publisher_that_may_only_read_is_silent_until_it_may_write() {
    needs!("mosquitto");
    let rules = |verb: &str| format!("user pub\ntopic {verb} #\nuser alice\ntopic read #\n");
    let mut stage = Stage::with_acl(&rules("read"), TOPICS).publisher("pub").reader("alice");
    stage.phase("read only", |_, _, _| false);
    stage.reload(&rules("readwrite"));
    stage.phase("both", |_, _, _| true);
    stage.reload(&rules("read"));
    stage.phase("read only again", |_, _, _| false);
}

#[test]
fn acl_a_reader_that_may_only_write_gets_nothing_until_it_may_read() {
    needs!("mosquitto");
    let rules = |verb: &str| {
        format!("user pub\ntopic write #\nuser alice\ntopic {verb} #\nuser bob\ntopic read #\n")
    };
    let mut stage =
        Stage::with_acl(&rules("write"), TOPICS).publisher("pub").reader("alice").reader("bob");
    stage.phase("write only", |_, reader, _| reader == "bob");
    stage.reload(&rules("readwrite"));
    stage.phase("both", |_, _, _| true);
    stage.reload(&rules("write"));
    stage.phase("write only again", |_, reader, _| reader == "bob");
}

#[test]
fn acl_two_publishers_of_one_topic_swap() {
    needs!("mosquitto");
    let rules = |writer: &str| format!("user {writer}\ntopic write #\nuser alice\ntopic read #\n");
    let mut stage =
        Stage::with_acl(&rules("one"), TOPICS).publisher("one").publisher("two").reader("alice");
    stage.phase("one", |publisher, _, _| publisher == "one");
    stage.reload(&rules("two"));
    stage.phase("two", |publisher, _, _| publisher == "two");
}

#[test]
fn acl_without_anonymous_clients_one_that_was_there_gets_nothing_more() {
    needs!("mosquitto", "mosquitto_passwd");
    let own = Folder::new();
    let passwords = own.write("passwords", "");
    for user in ["pub", "alice"] {
        let mut command = Command::new(needs::find("mosquitto_passwd").unwrap());
        command.arg("-b").arg(&passwords).args([user, "secret"]);
        let mut process = Process::start("passwd", own.path(), &mut command);
        assert!(process.await_end().success(), "{}", process.log());
    }
    let passwords = own.write("passwords", &std::fs::read_to_string(&passwords).unwrap());
    let config = format!("password_file {}", passwords.display());
    let mut stage = Stage::start(&config, "", TOPICS).publisher("pub").reader("alice");
    let nobody = Client::new(stage.broker.port(), "nobody");
    stage.seat("nobody", nobody);
    stage.phase("everybody", |_, _, _| true);
    let config = std::fs::read_to_string(stage.broker.config()).unwrap();
    std::fs::write(
        stage.broker.config(),
        config.replace("allow_anonymous true", "allow_anonymous false"),
    )
    .unwrap();
    let (_, mut nobody) = stage.readers.pop().unwrap();
    stage.signal();
    let beyond = std::iter::from_fn(|| nobody.try_message().ok()).count();
    assert_eq!(beyond, 0, "the broker hangs up on who has no name");
    stage.phase("those with a name", |_, _, _| true);
}

#[test]
fn acl_a_session_that_goes_on_under_another_name_has_the_rights_of_that() {
    needs!("mosquitto");
    let rules = "user pub\ntopic write #\nuser alice\ntopic read a/#\nuser bob\ntopic read b\n";
    let mut stage = Stage::with_acl(rules, TOPICS).publisher("pub");
    let as_user = |user: &str| Login::new("reader").persistent().credentials(user, "secret");
    let (client, _) = Client::connect(stage.broker.port(), &as_user("alice"));
    stage.seat("alice", client);
    stage.phase("alice", |_, _, topic| topic.starts_with("a/"));
    let (_, old) = stage.readers.pop().unwrap();
    let (client, is_present) = Client::connect(stage.broker.port(), &as_user("bob"));
    assert!(is_present);
    drop(old);
    stage.readers.push(("bob", client));
    stage.phase("bob", |_, _, topic| topic == "b");
}

const DYNAMIC: &str = "plugin PLUGIN\nplugin_opt_config_file FOLDER/dynamic.json";
const CONTROL: &str = "$CONTROL/dynamic-security/v1";

/// A stage with mosquitto's dynamic security; the first publisher is its administrator. `None`: the plugin or its tool is missing.
#[track_caller]
fn dynamic(readers: &[&'static str]) -> Option<Stage> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
    let plugin = folders.map(|folder| format!("{folder}/mosquitto_dynamic_security.so"));
    let plugin = plugin.into_iter().find(|path| std::path::Path::new(path).exists());
    let (Some(plugin), true) = (plugin, needs::has("mosquitto_ctrl")) else {
        let _ = needs::skip("mosquitto has no dynamic security here");
        return None;
    };
    let own = Folder::new();
    let path = own.join("dynamic.json");
    let mut command = Command::new(needs::find("mosquitto_ctrl").unwrap());
    command.args(["dynsec", "init"]).arg(&path).args(["admin", "secret"]);
    let mut process = Process::start("ctrl", own.path(), &mut command);
    assert!(process.await_end().success(), "{}", process.log());
    let config = DYNAMIC
        .replace("PLUGIN", &plugin)
        .replace("FOLDER/dynamic.json", &path.display().to_string());
    own.write("dynamic.json", &std::fs::read_to_string(&path).unwrap());
    let mut stage = Stage::start(&config, "", TOPICS);
    let login = Login::new("admin").credentials("admin", "secret");
    let (client, _) = Client::connect(stage.broker.port(), &login);
    stage.publishers.push(("admin", client));
    for access in ["publishClientSend", "publishClientReceive", "subscribe"] {
        stage.control(&format!(
            r#"{{"command":"setDefaultACLAccess","acls":[{{"acltype":"{access}","allow":true}}]}}"#
        ));
    }
    for reader in readers {
        stage.control(&format!(
            r#"{{"command":"createRole","rolename":"{reader}"}},
               {{"command":"createClient","username":"{reader}","password":"secret","roles":[{{"rolename":"{reader}"}}]}}"#
        ));
        stage = stage.reader(reader);
    }
    // The folder stays for as long as the broker writes there.
    std::mem::forget(own);
    Some(stage)
}

impl Stage {
    /// Gives the plugin commands; it has followed them when this returns.
    #[track_caller]
    fn control(&mut self, commands: &str) {
        let (_, admin) = &mut self.publishers[0];
        admin.publish(&Message::new(CONTROL, format!("{{\"commands\":[{commands}]}}")).qos(1));
    }
}

#[test]
fn acl_a_role_loses_and_gets_a_right_at_run_time() {
    needs!("mosquitto");
    let Some(mut stage) = dynamic(&["alice", "bob"]) else { return };
    stage.phase("open", |_, _, _| true);
    let acl = r#""rolename":"alice","acltype":"publishClientReceive","topic":"a/secret""#;
    stage.control(&format!(r#"{{"command":"addRoleACL",{acl},"allow":false}}"#));
    stage.phase("denied", |_, reader, topic| reader == "bob" || topic != "a/secret");
    stage.control(&format!(r#"{{"command":"removeRoleACL",{acl}}}"#));
    stage.phase("open again", |_, _, _| true);
}

#[test]
fn acl_a_client_that_is_disabled_gets_nothing_more() {
    needs!("mosquitto");
    let Some(mut stage) = dynamic(&["alice", "bob"]) else { return };
    stage.phase("both", |_, _, _| true);
    stage.control(r#"{"command":"disableClient","username":"bob"}"#);
    let (_, mut bob) = stage.readers.pop().unwrap();
    let beyond = std::iter::from_fn(|| bob.try_message().ok()).count();
    assert_eq!(beyond, 0, "the broker hangs up on who is disabled");
    stage.phase("alice", |_, _, _| true);
}

#[test]
fn acl_the_default_of_a_broker_changes_at_run_time() {
    needs!("mosquitto");
    let Some(mut stage) = dynamic(&["alice"]) else { return };
    let default = |allow: bool| {
        format!(
            r#"{{"command":"setDefaultACLAccess","acls":[{{"acltype":"publishClientReceive","allow":{allow}}}]}}"#
        )
    };
    stage.phase("open", |_, _, _| true);
    stage.control(&default(false));
    stage.phase("closed", |_, _, _| false);
    stage.control(&default(true));
    stage.phase("open again", |_, _, _| true);
}
