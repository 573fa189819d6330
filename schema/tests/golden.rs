//! The bytes of every message of every released version, kept in `golden/`.
//!
//! A file that differs means that a peer of that version is no longer understood, or no longer understands us. Files
//! are never changed: `WRITE_GOLDEN=1 cargo nextest run -p mqttshim-schema --test golden` only adds those that are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use mqttshim_schema::{Message, VERSION_MAX, decode, encode};

mod samples;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out).expect("a sample is within the limits");
    out
}

/// File name without `.bin`, and content.
fn golden_files() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder()).expect("the golden folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a readable file"))
        })
        .collect()
}

#[test]
fn every_golden_message_is_decoded_and_encoded_as_it_was() {
    if env::var_os("WRITE_GOLDEN").is_some() {
        write_missing();
    }
    let mut files = golden_files();
    for (name, sample) in samples::all() {
        let name = format!("v{VERSION_MAX}_{name}");
        let bytes = files.remove(&name).unwrap_or_else(|| panic!("golden/{name}.bin is missing"));
        assert_eq!(decode(&bytes).as_ref(), Ok(&sample), "golden/{name}.bin");
        assert_eq!(encoded(&sample), bytes, "golden/{name}.bin");
    }
    let current = format!("v{VERSION_MAX}_");
    for (name, bytes) in files {
        assert!(!name.starts_with(&current), "golden/{name}.bin belongs to no sample");
        assert!(decode(&bytes).is_ok(), "golden/{name}.bin of an older version is not understood");
    }
}

fn write_missing() {
    for (name, sample) in samples::all() {
        let path = folder().join(format!("v{VERSION_MAX}_{name}.bin"));
        if !path.exists() {
            fs::write(&path, encoded(&sample)).expect("a writable golden folder");
        }
    }
}

/// The number of a message's member in the schema's union. A new message does not compile here until it has one.
fn member(message: &Message<'_>) -> u16 {
    match message {
        Message::Hello(_) => 0,
        Message::Bind { .. } => 1,
        Message::Listen { .. } => 2,
        Message::Accepted { .. } => 3,
        Message::Connect { .. } => 4,
        Message::Connected { .. } => 5,
        Message::Data { .. } => 6,
        Message::Eof { .. } => 7,
        Message::Reset { .. } => 8,
        Message::Credit { .. } => 9,
        Message::Blocked { .. } => 10,
        Message::Shutdown { .. } => 11,
        Message::Close { .. } => 12,
        Message::Option { .. } => 13,
        Message::Notice { .. } => 14,
        Message::Reply { .. } => 15,
        Message::Heartbeat { .. } => 16,
        Message::PolicyChanged { .. } => 17,
    }
}

#[test]
fn every_member_of_the_union_has_a_sample_under_its_own_number() {
    let mut seen = BTreeSet::new();
    for (name, sample) in samples::all() {
        let bytes = encoded(&sample);
        let number = u16::from_le_bytes([bytes[16], bytes[17]]);
        assert_eq!(number, member(&sample), "{name}");
        seen.insert(number);
    }
    // The first number without a member: decode/tests.rs pins that it is unknown.
    assert_eq!(seen, (0..18).collect());
}
