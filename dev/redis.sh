#!/usr/bin/env bash
# Downloads Valkey and Redis of a newer Debian than this machine's, with their libraries, from the archive that this machine uses.
# Afterwards $NEWER_REDIS/bin has the commands valkey-server and redis-server.
#
# usage: redis.sh          download them, unless they exist
#        redis.sh test     also run the tests with real servers on both. `make test` runs these tests on the Redis of this machine
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

RELEASE=trixie
PACKAGES=(valkey-server valkey-tools redis-server redis-tools libc6 libgcc-s1 libstdc++6 libatomic1 libssl3t64 libjemalloc2 liblzf1
  libsystemd0 libcap2 libzstd1 zlib1g)

fetch() {
  local apt=$NEWER_REDIS/apt archive codename options package
  codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
  # shellcheck disable=SC2016  # apt's variable, not the shell's
  archive=$(apt-get indextargets --format '$(SITE)' "Codename: $codename" "Component: main" | head -n 1)
  [[ -n $archive ]] || die "apt has no archive of $codename from which Valkey can be fetched"
  rm -rf "$NEWER_REDIS"
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  printf 'deb %s %s main\n' "$archive" "$RELEASE" >"$apt/sources.list"
  options=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    -o Acquire::Retries=3 -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download "${PACKAGES[@]}")
  for package in "$apt"/*.deb; do dpkg -x "$package" "$NEWER_REDIS"; done
  rm -r "$apt"
}

# commands: write the commands, which use the libraries beside the programs.
commands() {
  local program loader
  loader=$(redis_loader)
  mkdir -p "$NEWER_REDIS/bin"
  for program in valkey redis; do
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "${loader%/*}" "$NEWER_REDIS/usr/bin/$program-server" \
      >"$NEWER_REDIS/bin/$program-server"
    chmod 0755 "$NEWER_REDIS/bin/$program-server"
  done
}

mkdir -p "$LOCAL/log"
if [[ ! -e $NEWER_REDIS/bin ]]; then
  with_progress "Downloading Valkey" "$LOCAL/log/redis.log" fetch
  commands
fi
if [[ ${1:-} == test ]]; then
  cd "$ROOT"
  for server in redis valkey; do
    export REDIS_SERVER=$NEWER_REDIS/bin/$server-server
    step "The tests with real servers on $("$REDIS_SERVER" --version | cut -d' ' -f1-3)"
    cargo test --workspace --locked --quiet --test redis
  done
fi
