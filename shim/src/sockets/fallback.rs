//! What becomes of a socket that should go to a card that is not there.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment::{self, Fallback};
use crate::log::say;
use crate::trace;

static IS_WARNED: AtomicBool = AtomicBool::new(false);

/// Tells the operator, once a process, and says what is to be done. `what` names the call and its address.
pub(super) fn without_card(what: &str, reason: &str) -> Fallback {
    let fallback = environment::fallback();
    if !IS_WARNED.swap(true, Ordering::Relaxed) {
        match fallback {
            Fallback::Kernel => say!(Warn, "{what} stays with the kernel: {reason}"),
            Fallback::Fail => {
                say!(Warn, "{what} fails, as MQTTSHIM_FALLBACK=fail asks: {reason}");
            }
        }
    }
    trace::because(trace::Reason::NoCard);
    fallback
}
