#!/usr/bin/env bash
# Tries to break the locks, at length: the exhaustive models with their larger bounds, then the simulation with many seeds.
# Prints the figures of docs/proof.md, and ends with "N passed, N failed".
#
#   local/prove.sh [MINUTES]      SEEDS=n to set the number of seeds
#
# MINUTES (30) is the time for the parts that run for as long as they are given; the others take what they take.
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
  MODEL_BOUND=large cargo test --locked --test model -- --nocapture --test-threads=1
}

simulation() {
  SEEDS=${SEEDS:-10000} cargo test --locked --test simulation -- --nocapture --test-threads=1
}

part "models" models
part "simulation" simulation
# The chaos run on the cluster goes here: part "chaos" chaos "$minutes".

echo
echo "$minutes minutes were given; parts that run for a time: none yet"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
