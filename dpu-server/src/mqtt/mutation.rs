//! Rules that can be switched off, to see whether the differential oracle notices (`scripts/oracle-mutations.sh`).
//!
//! Only with the cargo feature `mutations`, which no build that is given to anybody has: there the environment variable
//! `DPU_SERVER_MUTATION` names one rule. Without the feature every rule holds, and asking costs nothing.

/// A rule of the core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rule {
    /// A copy counts only if it is, byte for byte, what the card would have sent.
    ByteEqualCopies,
    /// A window is void where something else could have made the copies.
    VoidWindows,
    /// After a slow PUBLISH the next fast one waits for the barrier.
    Barrier,
    /// A PUBLISH that sets a Topic Alias reaches the broker.
    Alias,
    /// A subscriber with No Local does not get its own messages.
    NoLocal,
    /// A copy has the identifier of its subscription.
    SubscriptionIdentifier,
    /// A client sees each Packet Identifier once, whoever sends.
    IdentifierMapping,
    /// Both senders together keep to what the client takes at a time.
    ReceiveMaximum,
    /// The broker hears of a client whose messages the card eats.
    KeepAlive,
}

/// Whether this build is to break a rule.
#[cfg(feature = "mutations")]
pub(crate) fn is_off(rule: Rule) -> bool {
    use std::sync::OnceLock;

    static OFF: OnceLock<Option<Rule>> = OnceLock::new();
    let off = OFF.get_or_init(|| {
        let name = std::env::var("DPU_SERVER_MUTATION").ok()?;
        Some(match name.as_str() {
            "byte-equal-copies" => Rule::ByteEqualCopies,
            "void-windows" => Rule::VoidWindows,
            "barrier" => Rule::Barrier,
            "alias" => Rule::Alias,
            "no-local" => Rule::NoLocal,
            "subscription-identifier" => Rule::SubscriptionIdentifier,
            "identifier-mapping" => Rule::IdentifierMapping,
            "receive-maximum" => Rule::ReceiveMaximum,
            "keep-alive" => Rule::KeepAlive,
            _ => panic!("DPU_SERVER_MUTATION={name} is no rule"),
        })
    });
    *off == Some(rule)
}

/// Whether this build is to break a rule: it is not.
#[cfg(not(feature = "mutations"))]
#[inline]
pub(crate) const fn is_off(_: Rule) -> bool {
    false
}
