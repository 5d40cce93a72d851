#!/usr/bin/env bash
# Checks that the library and the command compile for macOS and Windows. Nothing is linked and nothing is run: this machine has neither.
#
# usage: dev/targets.sh; it needs rustup, which fetches the standard libraries
#
# TLS needs C and assembler (ring), and the program an allocator in C. Their build scripts need a C compiler for the other system. `cargo
# check` never reads the output of that compiler, so a script that writes empty files replaces it. The Rust code is checked, the C code is not.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TARGETS=(x86_64-pc-windows-gnu aarch64-apple-darwin)
EMPTY=$LOCAL/no-compiler
cd "$ROOT"

fetch() {
  command -v rustup >/dev/null || die "rustup is needed"
  # An installed target is not requested, because rustup would use the network without need.
  local target installed
  installed=$(rustup target list --installed)
  for target in "${TARGETS[@]}"; do
    grep -qx "$target" <<<"$installed" || rustup target add "$target"
  done
}

# The replacement of the compiler writes the file after -o. The replacement of `ar` writes the library.
no_compiler() {
  mkdir -p "$EMPTY"
  cat >"$EMPTY/cc" <<'END'
#!/bin/sh
for argument in "$@"; do
  if [ "$before" = -o ]; then : >"$argument"; fi
  before=$argument
done
END
  cat >"$EMPTY/ar" <<'END'
#!/bin/sh
for argument in "$@"; do
  case $argument in *.a) : >"$argument" ;; esac
done
END
  chmod +x "$EMPTY/cc" "$EMPTY/ar"
}

check() {
  local target name
  no_compiler
  for target in "${TARGETS[@]}"; do
    name=${target//-/_}
    step "The library and the command for $target"
    env "CC_$name=$EMPTY/cc" "AR_$name=$EMPTY/ar" \
      cargo check --quiet --locked --package redlock-client --package redlock-operator --lib --bin redlock --all-features --target "$target"
  done
}

fetch
check
