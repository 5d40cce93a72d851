#!/usr/bin/env bash
# Tries to break the locks, with long tests: the exhaustive models with larger bounds, the simulations of the engine and of whole operators
# with many seeds, and the parsers with random input. Then it tests the library's threads, commands that lose their lock, and a local
# cluster under faults. It prints the figures of docs/dev/proof.md. The last line is "N passed, N failed".
#
#   dev/prove.sh [MINUTES]      SEEDS=n for the simulation, SEED=n for the order of faults on the cluster
#
# MINUTES (30) is the time for the cluster. The times of the other parts are not limited. PARTS="chaos fuzz" runs only these parts.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT" || exit

minutes=${1:-${MINUTES:-30}}
passed=0
failed=0

# part NAME COMMAND...: run one part, and count it as passed or failed.
part() {
  local name=$1
  shift
  echo
  echo "== $name"
  local started=$SECONDS
  if "$@"; then
    passed=$((passed + 1))
    echo "== $name: passed ($((SECONDS - started)) s)"
  else
    failed=$((failed + 1))
    echo "== $name: FAILED ($((SECONDS - started)) s)"
  fi
}

models() {
  MODEL_BOUND=large cargo test "${OPTIMIZED[@]}" --workspace --locked --test model -- --nocapture --test-threads=1
}

simulation() {
  SEEDS=${SEEDS:-10000} cargo test "${OPTIMIZED[@]}" --workspace --locked --test simulation -- --nocapture --test-threads=1
}

operators() {
  SEEDS=${SEEDS:-10000} cargo test "${OPTIMIZED[@]}" --workspace --locked --test operator seeds -- --skip shorter --nocapture --test-threads=1
}

# Check that the simulation detects mistakes, with single rules removed from the operator.
mutants() {
  dev/mutants.sh
}

fuzz() {
  PROPTEST_CASES=${CASES:-5000} cargo test --workspace --locked --quiet --lib properties
}

# Check the shared state of the library's threads, and its pure parts in Miri. Without Miri a message is printed, and the result is that of loom.
threads() {
  dev/threads.sh loom || return 1
  if dev/threads.sh fetch; then
    dev/threads.sh miri
  else
    echo "Miri cannot be fetched here: left out"
  fi
}

# Check commands that lose their lock in each way for which docs/safety.md has a guarantee.
losses() {
  LOSSES=${LOSSES:-200} cargo test --workspace --locked --quiet --test run losses
}

# Run the suite `chaos` on one cluster, with the operator of this checkout.
chaos() {
  make --no-print-directory up && CHAOS_SECONDS=$((minutes * 60)) dev/e2e.sh chaos
}

for name in ${PARTS:-models simulation operators mutants fuzz threads losses chaos}; do
  case $name in
    models | simulation | operators | mutants | fuzz | threads | losses | chaos) part "$name" "$name" ;;
    *) echo "there is no part $name" && failed=$((failed + 1)) ;;
  esac
done

echo
echo "$minutes minutes for the cluster under faults"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
