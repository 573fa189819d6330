//! The library's symbols: exactly those of `exports.txt`. A symbol too many can collide with a program's own, one too few is a
//! call that goes past us.

mod support;

use std::fs;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

#[test]
fn exported_symbols_equal_the_golden_list() {
    let bytes = fs::read(support::library()).unwrap();
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let mut exported: Vec<&str> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().unwrap())
        .collect();
    exported.sort_unstable();
    let golden: Vec<&str> = include_str!("../exports.txt").lines().collect();
    assert_eq!(exported, golden);
}
