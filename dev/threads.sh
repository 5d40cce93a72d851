#!/usr/bin/env bash
# Checks the shared state of the library's threads, and the memory accesses of its pure parts.
#
#   dev/threads.sh loom     every interleaving of callers, the task of the members, and connections (the tests named `interleavings`)
#   dev/threads.sh miri     the pure parts in Miri, which finds undefined behaviour, leaks, and data races
#   dev/threads.sh fetch    installs Miri by rustup; fails where that is not possible
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NIGHTLY=${NIGHTLY:-nightly}
# Miri can run only tests without sockets. Tests of the engine and of pending releases are left out, because each takes minutes in Miri.
PURE=(redlock:: client::url:: client::secret_entries:: voting::resp:: voting::wire:: voting::pipeline:: --skip engine::tests)
cd "$ROOT"

fetch() {
  command -v rustup >/dev/null || { say "there is no rustup here" && return 1; }
  # An installed Miri is not requested, because rustup would use the network without need.
  cargo "+$NIGHTLY" miri --version >/dev/null 2>&1 && return
  rustup toolchain install "$NIGHTLY" --profile minimal --component miri --component rust-src
}

# With this cfg the library uses the mutexes and atomics of loom (crates/engine/src/sync.rs). Interleavings with more than three preemptions
# are left out, because there are too many, and no known mistake needs them.
loom() {
  # The cfg is in RUSTFLAGS, because cargo ignores `build.rustflags` if RUSTFLAGS is set. Then it would run no test.
  RUSTFLAGS="${RUSTFLAGS:-} --cfg redlock_loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3} \
    cargo test --locked --package redlock-engine --lib --target-dir "$LOCAL/loom" interleavings
}

miri() {
  # Other checks try random input, with many more cases than Miri has time for.
  MIRIFLAGS='-Zmiri-disable-isolation' PROPTEST_CASES=4 \
    cargo "+$NIGHTLY" miri test --locked --package redlock-engine --package redlock-client --lib --target-dir "$LOCAL/miri" -- "${PURE[@]}"
}

case ${1:-} in
  loom | miri | fetch) "$1" ;;
  *) die "usage: $0 loom|miri|fetch" ;;
esac
