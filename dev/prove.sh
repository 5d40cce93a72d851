#!/usr/bin/env bash
# Tries to break the locks, at length: the exhaustive models with their larger bounds, the simulations of the engine
# and of whole operators with many seeds, the parsers with much odd input, the library's threads, commands whose lock is lost, and a local
# cluster under faults. Prints the figures of docs/dev/proof.md, and ends with
# "N passed, N failed".
#
#   dev/prove.sh [MINUTES]      SEEDS=n for the simulation, SEED=n for the order of faults on the cluster
#
# MINUTES (30) is the time for the cluster; the others take what they take. PARTS="chaos fuzz" runs these alone.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

minutes=${1:-${MINUTES:-30}}
passed=0
failed=0

# Runs one part and counts it.
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
  MODEL_BOUND=large cargo test --workspace --locked --test model -- --nocapture --test-threads=1
}

simulation() {
  SEEDS=${SEEDS:-10000} cargo test --workspace --locked --test simulation -- --nocapture --test-threads=1
}

operators() {
  SEEDS=${SEEDS:-10000} cargo test --package redlock-simulation --locked --test operator seeds -- --skip shorter --nocapture --test-threads=1
}

# Whether that simulation sees: rules are taken out of the operator one by one. Seeds are named, and searched for when those fail.
mutants() {
  dev/mutants.sh
}

fuzz() {
  PROPTEST_CASES=${CASES:-5000} cargo test --workspace --locked --quiet --lib properties
}

# What threads of the library share, and its pure parts in Miri. Where Miri cannot be had that is said, and the rest counts.
threads() {
  dev/threads.sh loom || return 1
  if dev/threads.sh fetch; then
    dev/threads.sh miri
  else
    echo "Miri cannot be fetched here: left out"
  fi
}

# Commands under a lock that is lost in every way that docs/safety.md promises something for.
losses() {
  LOSSES=${LOSSES:-200} cargo test --workspace --locked --quiet --test run losses
}

# One cluster for the run, with the operator as it is in this checkout.
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
