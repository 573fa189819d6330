//! Who may do what, as far as the broker's side of the card knows of changes.
//!
//! A broker's access control changes when it reads a file, loads a plugin, or is told so by a client. The driver reports the first
//! two; the third is seen here, in the streams.

use super::super::config::Trust;
use super::Core;

/// Plugins whose every decision comes from a file the broker opens or a `$CONTROL` message, both of which are seen.
const KNOWN_PLUGINS: [&str; 1] = ["mosquitto_dynamic_security.so"];

impl Core {
    /// The broker may be about to change who may do what: from here on nothing observed before counts. To be called before the
    /// next input of a client.
    pub fn handle_policy_change(&mut self) {
        self.counters.policy_changes += 1;
        if let Some(observer) = &mut self.observer {
            observer.forget_everything();
        }
    }

    /// Every change that comes from outside the streams is reported by [`Self::handle_policy_change`] from here on, so that what
    /// was observed holds until then, not only for a while.
    pub fn handle_policy_watched(&mut self) {
        self.is_policy_watched = true;
        if let Some(observer) = &mut self.observer {
            observer.trust_events();
        }
    }

    /// The broker has loaded this shared object, a path or a name, which may change, deny or record messages. Under
    /// [`Trust::Observed`] everything goes to the broker from here on, unless it is known or the operator trusts it. Says whether it
    /// does.
    pub fn handle_plugin(&mut self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_trusted = KNOWN_PLUGINS.contains(&name)
            || self.config.trusted_plugins.iter().any(|it| it == name || it == path);
        self.handle_policy_change();
        let is_blind_spot = !is_trusted && self.config.trust == Trust::Observed;
        self.blind_spots.plugins += u32::from(is_blind_spot);
        if !is_trusted {
            tracing::info!(plugin = path, "the broker has loaded a plugin");
        }
        is_blind_spot
    }
}
