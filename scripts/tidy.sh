#!/usr/bin/env bash
# Rules of the tree that no lint knows: file lengths, unfinished marks, unsafe only where it may be, one SAFETY comment a block.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
complain() { echo "tidy: $*" >&2; bad=1; }

# Generated code, and what others wrote (vendor/), have rules of their own.
rust() { git ls-files '*.rs' | grep -v -e '_capnp\.rs$' -e '^vendor/'; }

while read -r file; do
  lines=$(awk '/^#\[cfg\((all\()?test/{exit} {n++} END{print n+0}' "$file")
  [ "$lines" -le 600 ] || complain "$file has $lines lines before its tests; split it at a concept"
  # Unfinished marks.
  grep -nE 'todo!\(|unimplemented!\(|FIXME|dbg!\(|#\[ignore' "$file" /dev/null && complain "unfinished marks in $file"
  case "$file" in
    shim/src/*|shim/tests/*|shim/session/src/memory.rs|shim/session/src/ring.rs|dpu-server/src/stack/kernel/*|port/src/sys/*|port/src/mem/memory.rs|tools/src/bench/*|fuzz/*|*/tests/*) ;;
    *) grep -nE '^\s*[^/]*\bunsafe\b' "$file" | grep -vE 'unsafe_code|unsafe_op|//.*unsafe|`unsafe`' && complain "$file: unsafe does not belong here" ;;
  esac
done < <(rust)
[ "$bad" = 0 ] && echo "tidy: $(rust | wc -l) files in order"
exit "$bad"
