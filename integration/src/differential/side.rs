//! One of the two brokers of a rig, alone or on a card, and what can be done to it.

use std::path::PathBuf;

use super::brand::Brand;
use super::dynamic;
use super::policy::Policy;
use super::terms::{Terms, Variant};
use crate::{Broker, BrokerSetup, Card, Folder, Server, wait};

/// What mosquitto writes when it begins to read its files again.
const RELOADING: &str = "Reloading config";

/// See the module.
#[derive(Debug)]
pub(super) struct Side {
    program: Program,
    pub(super) brand: Brand,
    /// `None`: the broker is alone.
    pub(super) card: Option<Card>,
    /// Where the broker's access control list is; `None`: it follows messages.
    file: Option<PathBuf>,
    policy: Policy,
    log: PathBuf,
}

#[derive(Debug)]
enum Program {
    Mosquitto(Broker),
    Other(Server),
}

impl Side {
    /// # Panics
    /// If something does not come up.
    #[track_caller]
    pub(super) fn start(
        folder: &Folder,
        name: &'static str,
        terms: Terms,
        is_on_card: bool,
        variant: Variant,
    ) -> Side {
        let Terms { brand, trust } = terms;
        let card = is_on_card.then(|| {
            let keeps = !brand.is_mosquitto() || variant == Variant::QueuesQos0;
            let text = format!("queue_qos0_messages = {keeps}\n");
            let config = folder.write("card.toml", &text).display().to_string();
            Card::start_with(folder, &["--config", &config, "--trust", &trust.to_string()])
        });
        let session = card.as_ref().map(Card::session);
        let plugin = brand.dynamic_security().filter(|_| variant == Variant::Dynamic);
        let policy = Policy::default();
        let mut file = None;
        let program = if brand.is_mosquitto() {
            let mut config = variant.config(brand);
            if let Some(plugin) = plugin {
                let rules = folder.write(&format!("{name}.json"), &dynamic::start());
                config += &dynamic::config(&plugin, &rules);
            } else if variant.has_policies(trust) {
                let rules = folder.write(&format!("{name}.acl"), &policy.to_string());
                config += &format!("\nacl_file {}", rules.display());
                file = Some(rules);
            }
            let program = brand.program();
            let setup = BrokerSetup {
                session,
                config: &config,
                program: &program,
                name: Some(name),
                ..BrokerSetup::default()
            };
            Program::Mosquitto(Broker::start(folder, &setup))
        } else {
            Program::Other(Server::start(folder, &brand.to_string(), name, session))
        };
        let log = folder.join(&format!("{name}.log"));
        Side { program, brand, card, file, policy, log }
    }

    pub(super) fn port(&self) -> u16 {
        match &self.program {
            Program::Mosquitto(broker) => broker.port(),
            Program::Other(server) => server.port(),
        }
    }

    /// Where the broker says what it does with its clients, if it does.
    pub(super) fn log(&self) -> Option<&PathBuf> {
        (!self.brand.is_late()).then_some(&self.log)
    }

    /// Has the broker read other rules. A PINGREQ sent from now on is answered when they hold.
    ///
    /// # Panics
    /// If it does not begin to.
    #[track_caller]
    pub(super) fn set_policy(&mut self, policy: &Policy) {
        let before = std::mem::replace(&mut self.policy, policy.clone());
        let Some(file) = &self.file else {
            dynamic::change(self.port(), &before, policy);
            return;
        };
        std::fs::write(file, policy.to_string()).expect("our own file");
        if let Program::Mosquitto(broker) = &mut self.program {
            let reloads = |broker: &Broker| broker.process.log().matches(RELOADING).count();
            let before = reloads(broker);
            broker.reload();
            wait::until("the broker reads its rules", || (reloads(broker) > before).then_some(()));
        }
    }

    /// Ends the card without a warning and starts it again; returns when the broker is served.
    ///
    /// # Panics
    /// If that does not happen.
    #[track_caller]
    pub(super) fn restart_card(&mut self) {
        let Some(card) = &mut self.card else { return };
        card.restart();
        if let Program::Mosquitto(broker) = &mut self.program {
            broker.await_service();
        }
    }
}
