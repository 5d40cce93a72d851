#!/usr/bin/env bash
# Installs the lock clients of other projects into .local/clients, for the suite `clients` and for `make bench`. Each client is a program of
# tests/clients with one lock library, in the version that its lock file pins. An unchanged client is not installed again, so a second run
# takes a moment. `clients.sh NAME...` installs only these clients.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SOURCES=$ROOT/tests/clients
CLIENTS=$LOCAL/clients

need() { command -v "$1" >/dev/null || die "$1 is needed for the lock clients of the suite clients: $2"; }

# client NAME COMMAND...: build a client unless it was built from the same sources. COMMAND leaves an executable `run`.
client() {
  local name=$1 sum
  shift
  sum=$(cd "$SOURCES/$name" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
  if [[ $(cat "$CLIENTS/$name/built-from" 2>/dev/null) == "$sum" ]]; then return; fi
  rm -rf "${CLIENTS:?}/$name"
  mkdir -p "$CLIENTS/$name" "$LOCAL/log"
  cp -R "$SOURCES/$name/." "$CLIENTS/$name/"
  with_progress "Installing the lock client $name" "$LOCAL/log/client-$name.log" nice "$0" "$@" "$CLIENTS/$name"
  printf '%s\n' "$sum" >"$CLIENTS/$name/built-from"
}

# starts DIRECTORY COMMAND...: write the executable `run` with which the tests start a client.
starts() {
  local directory=$1
  shift
  printf '#!/bin/sh\nexec %s\n' "${*@Q}" >"$directory/run"
  chmod +x "$directory/run"
}

python() {
  need python3 "install Python 3.9 or later with venv"
  python3 -m venv "$1/venv"
  "$1/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$1/requirements.txt"
  starts "$1" "$1/venv/bin/python" "$1/client.py"
}

node() {
  need npm "install Node.js 20 or later"
  (cd "$1" && npm ci --no-audit --no-fund)
  starts "$1" "$(type -P node)" "$1/client.js"
}

go() {
  need go "install Go 1.26 or later"
  command go -C "$1" build -trimpath -o client .
  starts "$1" "$1/client"
}

rust() {
  need cargo "install Rust"
  # This folder is kept when the sources change, because the dependencies take a minute and a half to build.
  CARGO_TARGET_DIR=$CLIENTS/.target command cargo build --quiet --locked --manifest-path "$1/Cargo.toml"
  cp "$CLIENTS/.target/debug/rslock-client" "$1/client"
  starts "$1" "$1/client"
}

java() {
  need mvn "install Maven and a JDK 17"
  mvn --quiet --batch-mode -f "$1/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.7.0:copy-dependencies "-DoutputDirectory=$1/lib"
  javac --release 17 -cp "$1/lib/*" -d "$1/classes" "$1/Client.java"
  starts "$1" "$(type -P java)" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$1/classes:$1/lib/*" Client
}

# chosen NAME
chosen() {
  case $1 in
    redlock-py | pottery) client "$1" python ;;
    node-redlock) client "$1" node ;;
    redsync) client "$1" go ;;
    rslock) client "$1" rust ;;
    redisson) client "$1" java ;;
    *) die "usage: clients.sh [NAME...]" ;;
  esac
}

case ${1:-} in
  python | node | go | rust | java) "$@" ;;
  *)
    if [[ $# == 0 ]]; then set -- redlock-py pottery node-redlock redsync rslock redisson; fi
    for name in "$@"; do chosen "$name"; done
    ;;
esac
