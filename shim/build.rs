//! Linker settings of the preloaded library.
//!
//! `nodelete`: hooks may run until the very end of a process, after `dlclose` of whatever pulled the library in.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    println!("cargo::rerun-if-changed=build.rs");
}
