#!/usr/bin/env bash
# Makes the file system of the operator's image: one static program and the certificates of public authorities. The Dockerfile calls this
# script, and `make test` calls it without Docker. `make release` publishes the programs that it builds.
#
# usage: packaging/image.sh amd64|arm64 DIRECTORY
#
#   PROFILE=quick   builds with Cargo's profile `quick` (default: dist)
#
# It needs Rust, and a C compiler for musl (Debian: musl-tools). To build for another architecture than this machine's, it needs a cross
# compiler instead (Debian: gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu, with the C library's headers).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# The largest size in bytes. Each pod that uses a lock can contain the program.
LARGEST=$((25 * 1000 * 1000))
AUTHORITIES=(/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem)

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# compiler ARCHITECTURE TARGET: set the C compiler of cc-rs, and the linker of Cargo.
compiler() {
  local architecture=$1 target=$2 gcc variable
  variable=${target//-/_}
  if [[ $architecture == "$(uname -m)" ]]; then
    command -v musl-gcc >/dev/null || die "musl-gcc is needed to build for $target: apt-get install musl-tools"
    export "CC_$variable=musl-gcc"
    return
  fi
  gcc=$architecture-linux-gnu-gcc
  command -v "$gcc" >/dev/null || die "$gcc is needed to build for $target: apt-get install gcc-${architecture//_/-}-linux-gnu"
  # The headers belong to glibc. Without its fortified functions the code uses only functions that musl has.
  export "CC_$variable=$gcc" "CFLAGS_$variable=-U_FORTIFY_SOURCE"
  export "CARGO_TARGET_${variable^^}_LINKER=$gcc"
}

# is_static PROGRAM: succeed if the program needs no interpreter and no library.
is_static() { ! readelf --program-headers --dynamic --wide "$1" | grep -qE 'INTERP|\(NEEDED\)'; }

# build ARCHITECTURE TARGET: build the program, and print its path.
build() {
  local architecture=$1 target=$2 profile=${PROFILE:-dist} program
  if command -v rustup >/dev/null; then rustup target add "$target" >&2; fi
  compiler "$architecture" "$target"
  cargo build --locked --manifest-path "$ROOT/Cargo.toml" --package redlock-operator --bin redlock \
    --target "$target" --profile "$profile" >&2
  if [[ $profile == dev ]]; then profile=debug; fi
  program=${CARGO_TARGET_DIR:-$ROOT/target}/$target/$profile/redlock
  is_static "$program" || die "$program is not static"
  if [[ $profile == dist ]]; then
    (($(stat --printf %s "$program") <= LARGEST)) || die "$program is larger than $LARGEST bytes"
  fi
  printf '%s\n' "$program"
}

# fill DIRECTORY PROGRAM
fill() {
  local directory=$1 program=$2 bundle
  rm -rf "$directory"
  install -D -m 0755 "$program" "$directory/usr/local/bin/redlock"
  for bundle in "${AUTHORITIES[@]}"; do
    if [[ -s $bundle ]]; then
      # External masters with `tls: {}` have certificates of public authorities.
      install -D -m 0644 "$bundle" "$directory/etc/ssl/certs/ca-certificates.crt"
      return
    fi
  done
  die "this machine has no certificates of public authorities: apt-get install ca-certificates"
}

(($# == 2)) || die "usage: packaging/image.sh amd64|arm64 DIRECTORY"
case $1 in
  amd64) architecture=x86_64 ;;
  arm64) architecture=aarch64 ;;
  *) die "$1: write amd64 or arm64" ;;
esac
program=$(build "$architecture" "$architecture-unknown-linux-musl")
fill "$2" "$program"
