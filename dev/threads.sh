#!/usr/bin/env bash
# What the library's threads share, and what its pure parts do with memory.
#
#   dev/threads.sh loom     every interleaving of callers, the task of the members, and connections (the tests named `interleavings`)
#   dev/threads.sh miri     the pure parts in Miri, which finds undefined behaviour, leaks, and data races
#   dev/threads.sh fetch    brings Miri here, by rustup; fails where it cannot be had
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NIGHTLY=${NIGHTLY:-nightly}
# No sockets: what Miri can run. Tests of the engine, and of what is owed to members, are left out: there each takes minutes.
PURE=(redlock:: client::url:: client::secret_entries:: voting::resp:: voting::wire:: voting::pipeline:: --skip engine::tests)
cd "$ROOT"

fetch() {
  command -v rustup >/dev/null || { say "there is no rustup here" && return 1; }
  # What is there is not asked for: rustup would need the network for nothing.
  cargo "+$NIGHTLY" miri --version >/dev/null 2>&1 && return
  rustup toolchain install "$NIGHTLY" --profile minimal --component miri --component rust-src
}

# With this cfg the mutexes and atomics of the library are loom's (crates/engine/src/sync.rs). Interleavings in which a thread is interrupted more
# than three times are left out: there are too many, and no known mistake needs them.
loom() {
  # Cargo ignores `build.rustflags` where RUSTFLAGS is set, and would run no test at all.
  RUSTFLAGS="${RUSTFLAGS:-} --cfg redlock_loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3} \
    cargo test --locked --package redlock-engine --lib --target-dir "$LOCAL/loom" interleavings
}

miri() {
  # Random input is tried elsewhere, with many more cases than Miri has time for.
  MIRIFLAGS='-Zmiri-disable-isolation' PROPTEST_CASES=4 \
    cargo "+$NIGHTLY" miri test --locked --package redlock-engine --package redlock-client --lib --target-dir "$LOCAL/miri" -- "${PURE[@]}"
}

case ${1:-} in
  loom | miri | fetch) "$1" ;;
  *) die "usage: $0 loom|miri|fetch" ;;
esac
