//! Numbers, addresses of memory, flags and strings, each as strace(1) writes it.

use super::line::{Line, put};
use super::memory;
use super::names::{Name, Names};

/// Bytes of a string, and elements of an array, that are shown (`strace -s`).
pub(super) const SHOWN_MAX: usize = 32;
/// Longest path (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// Smallest page of any machine.
const PAGE_BYTES_MIN: usize = 4096;

/// An address of memory.
pub(super) fn pointer(line: &mut Line, address: usize) {
    if address == 0 { line.push("NULL") } else { put!(line, "{address:#x}") }
}

/// A number in hexadecimal, `0` without its prefix.
pub(super) fn hex(line: &mut Line, value: u64) {
    if value == 0 { line.push("0") } else { put!(line, "{value:#x}") }
}

/// One constant by its name.
pub(super) fn choice(line: &mut Line, names: &Names, value: u64) {
    match names.find(value) {
        Some(name) => line.push(name),
        None => {
            hex(line, value);
            put!(line, " /* {} */", names.unknown);
        }
    }
}

/// Several constants, joined by `|`; what is left over in hexadecimal.
pub(super) fn flags(line: &mut Line, names: &Names, value: u64) {
    if value == 0 {
        return line.push("0");
    }
    let left = known_flags(line, names.all, value, "");
    if left == value {
        choice(line, &Names { all: &[], unknown: names.unknown }, value);
    } else if left != 0 {
        put!(line, "|{left:#x}");
    }
}

/// Adds those that are known, each after a `|` but for the first, which comes after `before`. Returns the rest.
pub(super) fn known_flags(line: &mut Line, all: &[Name], value: u64, before: &str) -> u64 {
    let (mut left, mut separator) = (value, before);
    for flag in all {
        if flag.value != 0 && left & flag.value == flag.value {
            line.push(separator);
            line.push(flag.name);
            left &= !flag.value;
            separator = "|";
        }
    }
    left
}

/// Bytes in quotes.
pub(super) fn quoted(line: &mut Line, bytes: &[u8]) {
    line.push("\"");
    escaped(line, bytes, 0);
    line.push("\"");
}

/// Bytes with escapes. A digit that follows a short octal escape would change it: then three digits are used. `after` is the
/// byte after the last.
fn escaped(line: &mut Line, bytes: &[u8], after: u8) {
    for (at, &byte) in bytes.iter().enumerate() {
        let next = bytes.get(at + 1).copied().unwrap_or(after);
        match byte {
            b'"' => line.push("\\\""),
            b'\\' => line.push("\\\\"),
            0x0c => line.push("\\f"),
            b'\n' => line.push("\\n"),
            b'\r' => line.push("\\r"),
            b'\t' => line.push("\\t"),
            0x0b => line.push("\\v"),
            b' '..=b'~' => line.push_bytes(&[byte]),
            _ if (b'0'..=b'7').contains(&next) => put!(line, "\\{byte:03o}"),
            _ => put!(line, "\\{byte:o}"),
        }
    }
}

/// The C string at `address`, whole: a path is no use without its end.
pub(super) fn path(line: &mut Line, address: usize) {
    const STEP_BYTES: usize = 64;
    if address == 0 {
        return line.push("NULL");
    }
    let begun = line.as_bytes().len();
    line.push("\"");
    let mut at = address;
    while at - address < PATH_BYTES_MAX {
        let mut bytes = [0; STEP_BYTES];
        // Not across the end of a page: the next one may not be there.
        let step = STEP_BYTES.min(PAGE_BYTES_MIN - at % PAGE_BYTES_MIN);
        if !memory::read(at, &mut bytes[..step]) {
            line.truncate(begun);
            return pointer(line, address);
        }
        let end = bytes[..step].iter().position(|&byte| byte == 0);
        escaped(line, &bytes[..end.unwrap_or(step)], 0);
        if end.is_some() {
            return line.push("\"");
        }
        at += step;
    }
    line.push("\"...");
}

/// The string of `length` bytes at `address`, cut at [`SHOWN_MAX`].
pub(super) fn string(line: &mut Line, address: usize, length: usize) {
    if address == 0 {
        return line.push("NULL");
    }
    // One more than shown: it decides how the last escape is written.
    let mut bytes = [0_u8; SHOWN_MAX + 1];
    let taken = &mut bytes[..length.min(SHOWN_MAX + 1)];
    if !memory::read(address, taken) {
        return pointer(line, address);
    }
    let shown = taken.len().min(SHOWN_MAX);
    quoted(line, &taken[..shown]);
    if length > SHOWN_MAX {
        line.push("...");
    }
}

/// The int at `address`, in brackets.
pub(super) fn int_at(line: &mut Line, address: usize) {
    match memory::load::<i32>(address) {
        Some(value) => put!(line, "[{value}]"),
        None => pointer(line, address),
    }
}

/// The elements at `address`, one every `size` bytes. `one` writes an element and says whether it could be read.
pub(super) fn array(
    line: &mut Line,
    address: usize,
    count: usize,
    size: usize,
    mut one: impl FnMut(&mut Line, usize) -> bool,
) {
    let is_sound = count.checked_mul(size).and_then(|bytes| address.checked_add(bytes)).is_some();
    if address == 0 {
        return line.push("NULL");
    }
    if count == 0 {
        return line.push("[]");
    }
    if !is_sound {
        return pointer(line, address);
    }
    for at in 0..count {
        let element = address + at * size;
        let begun = line.as_bytes().len();
        line.push(if at == 0 { "[" } else { ", " });
        if at == SHOWN_MAX {
            line.push("...");
            break;
        }
        if !one(line, element) {
            if at == 0 {
                line.truncate(begun);
                return pointer(line, address);
            }
            put!(line, "... /* {element:#x} */");
            break;
        }
    }
    line.push("]");
}

/// `{tv_sec=…, NAME=…}` from two numbers.
pub(super) fn time(line: &mut Line, [seconds, fraction]: [i64; 2], name: &str) {
    put!(line, "{{tv_sec={seconds}, {name}={}}}", fraction.cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::names;

    #[track_caller]
    fn assert_text(expected: &str, write: impl FnOnce(&mut Line)) {
        let mut line = Box::new(Line::new());
        write(&mut line);
        assert_eq!(String::from_utf8_lossy(line.as_bytes()), expected);
    }

    #[test]
    fn strings_are_escaped_in_octal() {
        let all = b"\x00\x04MQTT\x04\x02\x00<\x00\x00";
        assert_text(r#""\0\4MQTT\4\2\0<\0\0""#, |line| quoted(line, all));
        assert_text(r#""\0001\78\177~\200""#, |line| quoted(line, b"\x001\x078\x7f~\x80"));
        assert_text(r#""\"\\\f\n\r\t\v""#, |line| quoted(line, b"\"\\\x0c\n\r\t\x0b"));
    }

    #[test]
    fn strings_are_cut_after_32_bytes() {
        let bytes = [b'x'; 40];
        let address = bytes.as_ptr().addr();
        let x = "x".repeat(32);
        assert_text(&format!("\"{x}\""), |line| string(line, address, 32));
        assert_text(&format!("\"{x}\"..."), |line| string(line, address, 33));
        assert_text("\"\"", |line| string(line, address, 0));
        assert_text("NULL", |line| string(line, 0, 5));
        assert_text("0x1", |line| string(line, 1, 5));
    }

    #[test]
    fn paths_are_shown_whole() {
        let long = format!("/{}\x01", "x".repeat(200));
        let text = std::ffi::CString::new(long.clone()).unwrap();
        let expected = format!("\"{}\\1\"", &long[..201]);
        assert_text(&expected, |line| path(line, text.as_ptr().addr()));
        assert_text("0x8", |line| path(line, 8));
        assert_text("NULL", |line| path(line, 0));
    }

    #[test]
    fn flags_have_names_and_a_rest() {
        let message = |value| move |line: &mut Line| flags(line, names::MESSAGE, value);
        assert_text("0", message(0));
        assert_text("MSG_PEEK|MSG_DONTWAIT", message(0x42));
        assert_text("MSG_OOB|0x1000000", message(0x100_0001));
        assert_text("0x1000000 /* MSG_??? */", message(0x100_0000));
        assert_text("AF_INET6", |line| choice(line, names::FAMILY, 10));
        assert_text("0x63 /* AF_??? */", |line| choice(line, names::FAMILY, 99));
    }

    #[test]
    fn arrays_end_where_memory_does() {
        let pairs = [[1, 2], [3, 4]];
        let element = |line: &mut Line, address: usize| {
            let value = memory::load::<i32>(address);
            value.map(|value| put!(line, "{value}")).is_some()
        };
        let address = pairs.as_ptr().addr();
        assert_text("[1, 3]", |line| array(line, address, 2, 8, element));
        assert_text("[]", |line| array(line, address, 0, 8, element));
        assert_text("NULL", |line| array(line, 0, 2, 8, element));
        assert_text("0x8", |line| array(line, 8, 2, 8, element));
        assert_text("0x8", |line| array(line, 8, usize::MAX, 8, element));
        let many = [7; 40];
        let expected = format!("[{}...]", "7, ".repeat(32));
        assert_text(&expected, |line| array(line, many.as_ptr().addr(), 40, 4, element));
    }
}
