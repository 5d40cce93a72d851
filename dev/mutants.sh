#!/usr/bin/env bash
# Checks that the simulation of the operator detects mistakes. It removes one rule from the operator, runs the seeds that the mutant names,
# and expects a violation. There are two kinds of mutants, both in crates/simulation/tests/operator/mutants:
#
#   fields.txt    a field of the API that the operator does not read, and seeds that find the violation. tests/generated compares it with the CRDs
#   patches       a patch with the rule in its first line and the seeds in its second line. The changed code calls `mutants::on("NAME")`,
#                 so that one build contains all of them. SCENARIO in place of seeds means the written histories. A second line with
#                 `Test:` names a unit test of the operator, for a pure decision.
#
# A patch that no longer applies is a failure. If the named seeds find nothing, the script tries up to SEARCH (2000) seeds from the start of
# their range (100,000: Jobs that hold locks, 200,000: the whole API, 300,000: Leases of elections, 400,000: changes of members, 500,000:
# external masters, a set clock of the API server, terms of hours). A mutant that survives is a failure.
# First all named seeds run with the unchanged operator. A seed that violates something without a mutant proves nothing.
#
#   dev/mutants.sh [NAME...]      SEARCH=n for the search, SEARCH=0 for the named seeds alone
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MUTANTS=$ROOT/crates/simulation/tests/operator/mutants
TREE=$LOCAL/mutants/tree
SEARCH=${SEARCH:-2000}
# Number of seeds in one run of the search. The search ends after the first run with a violation.
STEP=50
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}

rm -rf "$TREE"
# The copies get new times (tar -m). Otherwise cargo could reuse the build of the last mutant.
mkdir -p "$TREE"
shopt -s nullglob
(cd "$ROOT" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf -) | tar -C "$TREE" -xmf -
cd "$TREE" || exit

simulation() { cargo test "${OPTIMIZED[@]}" --workspace --locked --quiet --test operator "$@"; }
build() { simulation --no-run >"$LOCAL/mutants/build.log" 2>&1; }
simulate() { simulation -- --exact seeds::no_seed_violates_anything --nocapture >"$LOCAL/mutants/run.log" 2>&1; }
histories() { simulation -- --exact seeds::no_written_history_violates_anything --nocapture >"$LOCAL/mutants/run.log" 2>&1; }

unit_test() { cargo test --workspace --locked --quiet --lib -- --exact "$1" >"$LOCAL/mutants/run.log" 2>&1; }

# Print the first seeds of the last run that showed a violation. Failures of the simulation itself do not show that a rule is missing.
violated() {
  awk '
    /^SEED=[0-9]+.*\[$/ { seed = $1; sub(/:.*/, "", seed); listed = 1; next }
    /^\]/ { listed = 0 }
    !listed || seed in found { next }
    /^ *"(it ended without a result|the simulation panicked|a panic: )/ || /asked for what is not modelled/ { next }
    /^ *"/ { found[seed]; print seed }' "$LOCAL/mutants/run.log" | head -n 5 | tr '\n' ' '
}

# found SEEDS: succeed and print the seeds if one of the mutant's seeds, or one of the search, shows a violation.
found() {
  local first start=0
  [[ $1 =~ [0-9]{6} ]] && start=$((BASH_REMATCH[0] / 100000 * 100000))
  if [[ $1 == *SCENARIO* ]]; then
    ! histories && [[ -n $(violated) ]] && echo "    found by a written history" && return 0
    return 1
  fi
  # A `SEED` that contains a blank is a list of seeds, even if it has only one.
  if [[ -n ${1// /} ]] && ! SEED=" $1" simulate && [[ -n $(violated) ]]; then
    echo "    found by $(violated)"
    return 0
  fi
  for ((first = start; first < start + SEARCH; first += STEP)); do
    if ! FIRST=$first SEEDS=$STEP simulate && [[ -n $(violated) ]]; then
      echo "    found by the search, write these seeds down: $(violated)"
      return 0
    fi
  done
  return 1
}

# fails TEST: succeed if the test fails with the mutant, and passes without it.
fails() {
  if MUTANT='' unit_test "$1" && ! unit_test "$1" && grep -q "^test result: FAILED. 0 passed; 1 failed" "$LOCAL/mutants/run.log"; then
    echo "    found by $1"
    return 0
  fi
  return 1
}

failed=0
passed=0
fail() {
  echo "    FAILED: $1"
  failed=$((failed + 1))
}
# judge SEEDS: count a mutant as found or failed.
judge() {
  local finds=found
  [[ $1 == *::* ]] && finds=fails
  if "$finds" "$1"; then
    passed=$((passed + 1))
  else
    fail "it survived: no test detects that this rule is missing"
  fi
}
wants() { ((${#names[@]} == 0)) || [[ " ${names[*]} " == *" $1 "* ]]; }
# seeds_of PATCH: print its seeds, or the name of its unit test.
seeds_of() { sed -nE '2s/^(Seeds|Test): *//p' "$1"; }
apply() { patch --quiet --forward --strip=1 --input="$1" --directory="$TREE"; }

names=("$@")
patches=() fields=()
for patch in "$MUTANTS"/*.patch; do
  if wants "$(basename "$patch" .patch)"; then patches+=("$patch"); fi
done
while read -r field seeds; do
  [[ -z $field || $field == \#* ]] || ! wants "$field" || fields+=("$field $seeds")
done <"$MUTANTS/fields.txt"
if ((${#patches[@]} + ${#fields[@]} == 0)); then
  echo "there is no such mutant"
  exit 1
fi

step "the operator as it is, and with the rules that are switched off by name"
mkdir -p "$LOCAL/mutants"
cp "$MUTANTS/switch.rs" src/mutants.rs
printf '\n#[doc(hidden)]\npub mod mutants;\n' >>src/lib.rs
applied=()
for patch in "${patches[@]}"; do
  if apply "$patch"; then applied+=("$patch"); else fail "$(basename "$patch"): the patch no longer applies"; fi
done
if ! build; then
  echo "it does not build, see ${LOCAL#"$ROOT"/}/mutants/build.log"
  exit 1
fi
named=$({ for patch in "${applied[@]}"; do seeds_of "$patch"; done; printf '%s\n' "${fields[@]}" | cut -d' ' -f2-; } |
  tr ' ' '\n' | grep -E '^[0-9]+$' | sort -nu | tr '\n' ' ')
if ! SEED=" $named" simulate; then
  fail "some of these seeds violate something without any mutant: $(violated), see ${LOCAL#"$ROOT"/}/mutants/base.log"
  cp "$LOCAL/mutants/run.log" "$LOCAL/mutants/base.log"
fi

for field in "${fields[@]}"; do
  step "the operator does not read the field ${field%% *}"
  export BLIND=${field%% *}
  judge " ${field#* }"
  unset BLIND
done
for patch in "${applied[@]}"; do
  MUTANT=$(basename "$patch" .patch)
  export MUTANT
  step "$MUTANT"
  judge "$(seeds_of "$patch")"
  unset MUTANT
done

echo "$passed mutants found, $failed failed"
((failed == 0))
