//! What happens when the library is loaded: symbols are resolved, the environment is read, fork is told to tell us, and
//! descriptors that came through exec are looked at. No thread; no output unless a trace is asked for; no descriptor unless a
//! session's socket came.

use crate::environment;
use crate::fork;
use crate::guard;
use crate::inherit;
use crate::real;
use crate::trace;

/// Run by the dynamic linker after libc's own initialisation, before `main`.
extern "C" fn load() {
    guard::fenced(|| {
        real::resolve();
        environment::read();
        fork::register();
        trace::start();
        inherit::look_around();
    });
}

/// Run by the dynamic linker when the process ends in good order.
extern "C" fn unload() {
    trace::finish();
}

// In unit tests there is nothing to take over.
#[cfg(not(test))]
#[used]
// SAFETY: the section holds pointers to functions of this type; the linker's arguments are ignored.
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
// SAFETY: as above.
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

/// Which release this is, for `mqttshim run` and `mqttshim doctor`, which read it from the file.
#[cfg(not(test))]
#[used]
// SAFETY: the section holds text that nothing interprets.
#[unsafe(link_section = ".mqttshim.version")]
static VERSION: [u8; env!("CARGO_PKG_VERSION").len()] = *VERSION_TEXT;

#[cfg(not(test))]
const VERSION_TEXT: &[u8; env!("CARGO_PKG_VERSION").len()] =
    env!("CARGO_PKG_VERSION").as_bytes().first_chunk().expect("its own length");

#[cfg(test)]
mod tests {
    #[test]
    fn loading_leaves_errno_alone() {
        crate::errno::set(rustix::io::Errno::NOTTY);
        super::load();
        super::unload();
        assert_eq!(crate::errno::last(), rustix::io::Errno::NOTTY);
    }
}
