#!/usr/bin/env bash
# Makes the checks of the library's releases that are not tests.
#
#   dev/library.sh                makes all checks below
#   dev/library.sh package        makes the packages as they are published, and compiles them
#   dev/library.sh oldest         checks that the oldest compiler that crates/client/Cargo.toml names builds it
#   dev/library.sh least          checks that the least versions that its Cargo.toml declare build it
#   dev/library.sh api [write]    compares its public items with crates/client/public-api.txt, or writes them there
#
# `oldest`, `least` and `api` install their tools with rustup and cargo.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PUBLIC_API_VERSION=0.52.0
PUBLIC_API=$BIN/cargo-public-api
# cargo-public-api reads rustdoc's output, which has no stable format. Therefore it can refuse the output of another nightly toolchain.
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
      # A nightly toolchain newer than the tool can write a format that the tool cannot read.
      printed >"$LOCAL/public-api.txt" || { say "cargo-public-api $PUBLIC_API_VERSION cannot read what this $NIGHTLY writes" && return 1; }
      ;;
  esac
}

# An installed toolchain is not requested, because rustup would use the network without need.
fetch_toolchain() {
  rustup run "$1" rustc --version >/dev/null 2>&1 || rustup toolchain install "$1" --profile minimal
}

# Compiles the two packages from their files. `cargo publish --dry-run` would compile the client against the engine
# that an earlier run unpacked into the registry of CARGO_HOME, because the version is the same.
package() {
  local unpacked=$LOCAL/package crate
  rm -rf "$unpacked" target/package/redlock-*.crate && mkdir -p "$unpacked"
  # --allow-dirty: like all other checks, this one uses the working copy.
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
  # The separate target directory keeps the builds of the usual compiler in `target`.
  RUSTUP_TOOLCHAIN=$oldest cargo check --quiet --locked --package redlock-client --target-dir "$LOCAL/oldest"
  RUSTUP_TOOLCHAIN=$oldest cargo check --quiet --locked --package redlock-client --all-features --target-dir "$LOCAL/oldest"
}

# A separate workspace contains no other crate that requires newer versions. Only the nightly cargo can resolve direct dependencies to their
# least versions.
least() {
  local copy=$LOCAL/least
  rm -rf "$copy/crates" && mkdir -p "$copy/crates"
  cp -r crates/client crates/engine "$copy/crates"
  # The examples and tests are removed, because users do not get their dependencies.
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

# check NAME ARGUMENT...: install the check's tool, and make the check.
check() {
  step "The library: $1"
  if [[ $1 != package ]]; then fetch "$1"; fi
  "$@"
}

case ${1:-} in
  package | oldest | least | api) check "$@" ;;
  '') for name in package oldest least api; do check "$name"; done ;;
  *) die "usage: $0 [package|oldest|least|api [write]]" ;;
esac
