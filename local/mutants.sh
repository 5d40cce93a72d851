#!/usr/bin/env bash
# Shows that the simulation of the operator can see: takes one rule out of the operator, runs the seeds that the mutant names, and
# expects a violation. Each file of tests/operator_simulation/mutants is a patch with the rule in its first line and the seeds that
# find it in its second. A patch that no longer applies is a failure. When the named seeds find nothing, up to SEARCH (2000) seeds
# are tried, from 100,000 on (Jobs that hold locks) if the named ones are from there, and a mutant that survives them is a failure.
# First all named seeds run with the operator as it is: if one of them shows a violation then, it proves nothing.
#
# Each mutant costs a build of the operator and of the simulation, about a minute; what they depend on is taken from target/.
#
#   local/mutants.sh [NAME...]      SEARCH=n for the search, SEARCH=0 for the named seeds alone
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MUTANTS=$ROOT/tests/operator_simulation/mutants
TREE=$LOCAL/mutants/tree
SEARCH=${SEARCH:-2000}
# So many seeds are tried before the search looks whether it has found something.
STEP=50
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}

rm -rf "$TREE"
# With new times, or cargo would take what the last mutant left for what it has built.
mkdir -p "$TREE"
shopt -s nullglob
(cd "$ROOT" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf -) | tar -C "$TREE" -xmf -
cd "$TREE" || exit

# A mutant runs few seeds: a build that takes less time is worth more than one that runs faster.
simulation() { cargo test --workspace --config 'profile.dev.package.redlock-operator.opt-level=0' --locked --quiet --test operator_simulation "$@"; }
build() { simulation --no-run >"$LOCAL/mutants/build.log" 2>&1; }
simulate() { simulation -- --exact seeds::no_seed_violates_anything --nocapture; }

# Those of the last run that showed a violation.
violated() { grep -o '^SEED=[0-9]*' "$LOCAL/mutants/run.log" | head -n 5 | tr '\n' ' '; }

# Whether one of the seeds that the mutant names, or one of the search, shows a violation; prints which.
found() {
  local first start=0
  [[ $1 =~ [0-9]{6} ]] && start=100000
  # With a blank in it `SEED` is a list of seeds, also of one.
  if [[ -n ${1// /} ]] && ! SEED=" $1" simulate >"$LOCAL/mutants/run.log" 2>&1 && [[ -n $(violated) ]]; then
    echo "    found by $(violated)"
    return 0
  fi
  for ((first = start; first < start + SEARCH; first += STEP)); do
    if ! FIRST=$first SEEDS=$STEP simulate >"$LOCAL/mutants/run.log" 2>&1 && [[ -n $(violated) ]]; then
      echo "    found by the search, write these seeds into the mutant's second line: $(violated)"
      return 0
    fi
  done
  return 1
}

failed=0
passed=0
fail() {
  echo "    FAILED: $1"
  failed=$((failed + 1))
}

wanted=()
for patch in "$MUTANTS"/*.patch; do
  if (($# == 0)) || [[ " $* " == *" $(basename "$patch" .patch) "* ]]; then wanted+=("$patch"); fi
done

step "the operator as it is"
if ! build; then
  echo "it does not build, see ${LOCAL#"$ROOT"/}/mutants/build.log"
  exit 1
fi
if ((${#wanted[@]} == 0)); then
  echo "there is no such mutant"
  exit 1
fi
named=$(sed -ns '2s/^Seeds://p' "${wanted[@]}" | tr ' ' '\n' | sort -nu | tr '\n' ' ')
if ! SEED=" $named" simulate >"$LOCAL/mutants/base.log" 2>&1; then
  fail "some of these seeds violate something without any mutant: $named, see ${LOCAL#"$ROOT"/}/mutants/base.log"
fi

for patch in "${wanted[@]}"; do
  name=$(basename "$patch" .patch)
  step "$name"
  if ! patch --quiet --forward --strip=1 --input="$patch" --directory="$TREE"; then
    fail "the patch no longer applies: take the rule out by hand and write the patch again"
    continue
  fi
  if ! build; then
    fail "it does not build, see ${LOCAL#"$ROOT"/}/mutants/build.log"
  elif found "$(sed -n '2s/^Seeds://p' "$patch")"; then
    passed=$((passed + 1))
  else
    fail "it survived: the simulation does not see this rule"
  fi
  patch --quiet --reverse --strip=1 --input="$patch" --directory="$TREE"
done

echo "$passed mutants found, $failed failed"
((failed == 0))
