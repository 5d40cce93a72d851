#!/usr/bin/env bash
# What a release of the library needs beside its tests.
#
#   dev/library.sh package        makes the packages as they are published, and compiles them
#   dev/library.sh oldest         checks that the oldest compiler that crates/client/Cargo.toml names builds it
#   dev/library.sh least          checks that the least versions that its Cargo.toml declare build it
#   dev/library.sh api [write]    compares its public items with crates/client/public-api.txt, or writes them there
#   dev/library.sh fetch TOOL     brings what `oldest` or `api` needs; fails where that cannot be had, and says why
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PUBLIC_API_VERSION=0.52.0
PUBLIC_API=$BIN/cargo-public-api
# The format of rustdoc's output, which cargo-public-api reads, is not stable: it may refuse another one.
NIGHTLY=${NIGHTLY:-nightly}
API=crates/client/public-api.txt
cd "$ROOT"

oldest_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' crates/client/Cargo.toml; }

fetch() {
  command -v rustup >/dev/null || { say "there is no rustup here" && return 1; }
  case $1 in
    oldest) fetch_toolchain "$(oldest_version)" ;;
    least) fetch_toolchain "$NIGHTLY" ;;
    api)
      fetch_toolchain "$NIGHTLY" || return 1
      cargo_tool cargo-public-api "$PUBLIC_API_VERSION" "$PUBLIC_API" public-api --version
      # A nightly toolchain that is newer than the tool may write what it cannot read.
      printed >"$LOCAL/public-api.txt" || { say "cargo-public-api $PUBLIC_API_VERSION cannot read what this $NIGHTLY writes" && return 1; }
      ;;
    *) die "there is no tool for $1" ;;
  esac
}

# What is there is not asked for: rustup would need the network for nothing.
fetch_toolchain() {
  rustup run "$1" rustc --version >/dev/null 2>&1 || rustup toolchain install "$1" --profile minimal
}

# Compiles the two packages from their files. `cargo publish --dry-run` would compile the client against the engine
# that an earlier run unpacked into the registry of CARGO_HOME, because the version is the same.
package() {
  local unpacked=$LOCAL/package crate
  rm -rf "$unpacked" target/package/redlock-*.crate && mkdir -p "$unpacked"
  # --allow-dirty: the package holds the working copy, as every other check here.
  cargo package --no-verify --quiet --locked --allow-dirty --package redlock-engine --package redlock-client
  for crate in target/package/redlock-{engine,client}-[0-9]*.crate; do
    tar --extract --touch --file "$crate" --directory "$unpacked"
  done
  {
    printf '[workspace]\nmembers = ["*"]\nresolver = "3"\n\n[patch.crates-io]\n'
    printf 'redlock-engine.path = "%s"\n' "$(cd "$unpacked" && echo redlock-engine-*)"
  } >"$unpacked/Cargo.toml"
  cp Cargo.lock "$unpacked"
  cargo check --quiet --manifest-path "$unpacked/Cargo.toml" --workspace --all-features --target-dir target
}

oldest() {
  local oldest
  oldest=$(oldest_version)
  # In a directory of its own: another compiler would build everything in `target` once more.
  RUSTUP_TOOLCHAIN=$oldest cargo check --quiet --locked --package redlock-client --target-dir "$LOCAL/oldest"
  RUSTUP_TOOLCHAIN=$oldest cargo check --quiet --locked --package redlock-client --all-features --target-dir "$LOCAL/oldest"
}

# In a workspace of its own, so that nothing else asks for newer versions. Only the nightly cargo resolves direct dependencies to the least.
least() {
  local copy=$LOCAL/least
  rm -rf "$copy/crates" && mkdir -p "$copy/crates"
  cp -r crates/client crates/engine "$copy/crates"
  # Without examples and tests, whose dependencies users do not get.
  sed -i '/^\[\[example\]\]/,/^$/d; /^\[dev-dependencies\]/,/^$/d' "$copy"/crates/*/Cargo.toml
  { printf '[workspace]\nmembers = ["crates/*"]\nresolver = "3"\n\n' && sed -n '/^\[workspace.lints/,/^$/p' Cargo.toml; } >"$copy/Cargo.toml"
  (cd "$copy" && cargo "+$NIGHTLY" update --quiet -Z direct-minimal-versions && cargo "+$NIGHTLY" check --quiet --locked --workspace --all-features)
}

printed() {
  CARGO_TARGET_DIR=$LOCAL/public-api rustup run "$NIGHTLY" "$PUBLIC_API" public-api --package redlock-client --all-features -ss --color never
}

api() {
  if [[ ${1:-} == write ]]; then
    printed >"$API"
  elif ! diff -u "$API" <(printed); then
    die "the public items of the library have changed: run '$0 api write', and tell users in crates/client/CHANGELOG.md"
  fi
}

case ${1:-} in
  package | oldest | least) "$1" ;;
  api | fetch) "$@" ;;
  *) die "usage: $0 package|oldest|least|api [write]|fetch TOOL" ;;
esac
