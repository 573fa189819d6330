//! Shared objects that the program loads by itself: perhaps plugins, which change or deny messages where nobody sees it.
//!
//! ```text
//! dlopen ──► noted by name ──► session opened: those that are loaded ──► card
//!                    └──────── session open: at once ───────────────────────► card
//! ```
//!
//! The card is told file names only; what each means is its operator's to say. Left out is what is certainly no plugin of a
//! broker ([`is_no_plugin`], docs/adr/0015), and what was loaded before the call. libc's own (name services, character sets) are loaded past us.
//!
//! At most [`NOTED_MAX`] names are kept before a session is there; one more stands for all the others.

use std::ffi::{CStr, c_int, c_void};

use libc::{dl_phdr_info, size_t};
use mqttshim_schema::{Notice, TEXT_BYTES_MAX};
use mqttshim_session::Session;

use crate::sessions;
use crate::state;

/// Names kept.
const NOTED_MAX: usize = 64;
/// What the card is told in place of the names there was no room for.
const TOO_MANY: &[u8] = b"more shared objects than are counted";

/// A name that the program gave to dlopen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Noted {
    name: Vec<u8>,
    /// Loaded into a name space of its own, into which one cannot look from here.
    is_apart: bool,
}

/// The program is about to load what this name leads to, if it leads to anything.
pub(crate) fn about_to_load(name: &CStr, is_apart: bool) {
    let bytes = name.to_bytes();
    let is_new = is_apart || !is_loaded(bytes);
    if !is_new || is_no_plugin(bytes) || is_path(bytes) && !is_there(name) {
        return;
    }
    let noted = Noted { name: bytes.to_vec(), is_apart };
    let mut state = state::lock();
    sessions::in_use().for_each(|session| tell(session, bytes));
    let known = &mut state.plugins;
    if known.contains(&noted) {
        return;
    }
    match known.len() {
        0..NOTED_MAX => known.push(noted),
        // Always told, and no name that could be a file's.
        NOTED_MAX => known.push(Noted { name: TOO_MANY.to_vec(), is_apart: true }),
        _ => {}
    }
}

/// Tells the card of a new session what was loaded before and still is.
pub(crate) fn tell_all(session: &Session, noted: &[Noted]) {
    let is_there = |noted: &&Noted| noted.is_apart || is_loaded(&noted.name);
    noted.iter().filter(is_there).for_each(|noted| tell(session, &noted.name));
}

fn tell(session: &Session, name: &[u8]) {
    if session.reports_policy() {
        session.notice(Notice::LibraryLoaded, &told_name(name));
    }
}

/// The name as it travels: of a longer one the end, which says more.
fn told_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let too_many = name.len().saturating_sub(TEXT_BYTES_MAX);
    name[name.ceil_char_boundary(too_many)..].to_owned()
}

/// Whether the loader takes the name for a path instead of searching for it.
fn is_path(name: &[u8]) -> bool {
    // `$ORIGIN` and its like stand for the caller's own place.
    name.contains(&b'/') && !name.contains(&b'$')
}

/// Whether there is such a file. Asked in the program's place: its call fails without one.
fn is_there(path: &CStr) -> bool {
    rustix::fs::stat(path).is_ok()
}

/// Parts of the paths of what a language's runtime loads, which is the program's own as much as its scripts are, and of
/// OpenSSL's modules, which decide nothing about messages.
const NO_PLUGIN: [&[u8]; 7] = [
    b".cpython-",
    b".abi3.so",
    b"/lib-dynload/",
    b"/lib/erlang/",
    b"/ossl-modules/",
    b"/engines-3/",
    b"/engines-1.1/",
];

/// Whether a file of this name is certainly no plugin of a broker.
fn is_no_plugin(name: &[u8]) -> bool {
    let has = |part: &&[u8]| name.windows(part.len()).any(|window| window == *part);
    name.ends_with(b".node") || NO_PLUGIN.iter().any(has)
}

/// Whether an object of this name is loaded: of this path, or of this file name where that is all there is.
fn is_loaded(name: &[u8]) -> bool {
    /// # Safety
    /// As dl_iterate_phdr(3) calls it, with a pointer to the name.
    unsafe extern "C" fn look(info: *mut dl_phdr_info, _: size_t, name: *mut c_void) -> c_int {
        // SAFETY: what `is_loaded` passes, alive during the iteration.
        let name = unsafe { *name.cast_const().cast::<&[u8]>() };
        // SAFETY: valid for the call, as dl_iterate_phdr(3) says.
        let object = unsafe { (*info).dlpi_name };
        if object.is_null() {
            return 0;
        }
        // SAFETY: a string of the loader's.
        let object = unsafe { CStr::from_ptr(object) };
        c_int::from(is_named(object.to_bytes(), name))
    }
    let mut name = name;
    // SAFETY: the function takes what is passed, and the loader holds the objects while it iterates.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut name).cast()) != 0 }
}

/// Whether the loader's name of an object is what this one led to.
fn is_named(object: &[u8], name: &[u8]) -> bool {
    let file = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next() == Some(name);
    if is_path(name) { object == name } else { file(object) || object == name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_told_from_what_is_not() {
        assert!(is_loaded(b"libc.so.6"));
        for name in [&b"libno_such_thing.so"[..], b"libc.so", b"/elsewhere/libc.so.6"] {
            assert!(!is_loaded(name), "{name:?}");
        }
    }

    #[test]
    fn runtimes_and_cryptography_are_no_plugins_and_everything_else_may_be_one() {
        for name in [
            "/usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
            "/srv/venv/site-packages/x/_speedups.cpython-311-x86_64-linux-gnu.so",
            "/srv/venv/site-packages/cryptography/_rust.abi3.so",
            "/srv/app/node_modules/bcrypt/bcrypt.node",
            "/usr/lib/erlang/lib/crypto-5.1.2/priv/lib/crypto.so",
            "/usr/lib/x86_64-linux-gnu/ossl-modules/legacy.so",
        ] {
            assert!(is_no_plugin(name.as_bytes()), "{name}");
        }
        for name in [
            "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so",
            "/usr/lib/mosquitto-go-auth.so",
            "/srv/erlang/auth.so",
            "libauth.so",
            "./plugin.so",
            "",
        ] {
            assert!(!is_no_plugin(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn of_a_long_name_the_end_travels() {
        let long = format!("/{}/ü/plugin.so", "é".repeat(200));
        let told = told_name(long.as_bytes());
        assert!(told.len() <= TEXT_BYTES_MAX && told.ends_with("é/ü/plugin.so"), "{told}");
        assert_eq!(told_name(b"/a/b.so"), "/a/b.so");
    }
}
