#!/usr/bin/env bash
# Counts the lines of code in src and crates/*/src, without comments and blank lines: production code by crate or module, and unit tests. A
# unit test is a file named tests.rs or properties.rs, a file below tests/, or the code after `#[cfg(test)]` at the start of a line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find src crates/{api,cli,client,engine}/src -name '*.rs' | LC_ALL=C sort | xargs awk '
  FNR == 1 {
    split(FILENAME, part, "/")
    module = part[1] == "crates" ? part[1] "/" part[2] : part[2]
    sub(/\.rs$/, "", module)
    test = FILENAME ~ /\/(tests|properties|fake|test_util)(\.rs|\/)/
  }
  /^#\[cfg\(test\)\]/ { test = 1 }
  /^[[:space:]]*$/ || /^[[:space:]]*\/\// { next }
  test { tests++; next }
  { lines[module]++; production++ }
  END {
    for (module in lines) printf "%-18s %6d\n", module, lines[module] | "LC_ALL=C sort"
    close("LC_ALL=C sort")
    printf "%-18s %6d\n%-18s %6d\n%-18s %6d\n", "production", production, "unit tests", tests, "all", production + tests
  }'
