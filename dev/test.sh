#!/usr/bin/env bash
# Runs all checks: lints, documentation, all tests, and the end-to-end suite on the
# local cluster. At the end it prints a summary. The first failure is the end. The
# end-to-end tests take longest and leave the cores idle for half of their time, so they
# start as soon as they can, and most other steps run beside them. The unit tests run alone,
# because many of them have time limits, too.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# A shell starts its background jobs with SIGINT ignored, and every program inherits that. Tests that interrupt a command would never end.
if [[ -z ${SIGNALS_ARE_DEFAULT:-} ]]; then
  SIGNALS_ARE_DEFAULT=1 exec env --default-signal=INT --default-signal=QUIT "${BASH_SOURCE[0]}" "$@"
fi

LOGS=$LOCAL/log
mkdir -p "$BIN" "$LOGS"
cd "$ROOT"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
START=$SECONDS
SUMMARY=()
FAILED=0
declare -A JOBS=() # process group of each background job

# ------------------------------------------------------------------ summary ---

note() { SUMMARY+=("$(printf '%-38s %-8s %6s' "$1" "$2" "$3")"); }

summary() {
  local line
  if ((${#JOBS[@]})); then kill -- "${JOBS[@]/#/-}" 2>/dev/null || true; fi
  printf '\n%-38s %-8s %6s\n' step result time
  for line in "${SUMMARY[@]}"; do printf '%s\n' "$line"; done
  printf '%-38s %-8s %6s\n' all "$( ((FAILED)) && echo FAILED || echo passed)" "$((SECONDS - START)) s"
}

# run NAME COMMAND...: run one step. The first failed step ends the script.
run() {
  local name=$1 start=$SECONDS
  shift
  step "$name"
  if "$@"; then
    note "$name" passed "$((SECONDS - start)) s"
  else
    note "$name" FAILED "$((SECONDS - start)) s"
    FAILED=1
    exit 1
  fi
}
skip() {
  step "$1: skipped, $2"
  note "$1" skipped "-"
}
finish() {
  local code=$?
  if ((code)); then FAILED=1; fi
  summary
  exit "$code"
}
trap finish EXIT

# -------------------------------------------------------------------- steps ---

# With 1 the script also checks the image and the files of a release.
PACKAGING=${PACKAGING:-1}

# Install and build the tools. This takes minutes on a fresh machine, and later a second.
prepare() {
  if [[ ${CLUSTER:-local} == local ]]; then
    "$ROOT/dev/setup.sh"
    needs shellcheck shellcheck
    needs patch patch
    needs chromium chromium
    needs promtool prometheus
    if ((PACKAGING)); then needs rpmbuild rpm lintian; fi
  fi
  if command -v go >/dev/null; then "$ROOT/dev/go.sh" build; fi
}

cluster() { make --no-print-directory up; }
suite() { "$ROOT/dev/e2e.sh" main; }

# background JOB: run this function in the background, in a process group of its own. `set -m` also keeps the default of SIGINT.
background() {
  set -m
  "$1" >"$LOGS/$1.log" 2>&1 &
  JOBS[$1]=$!
  set +m
}
# finished JOB: wait for its end, and print its progress.
finished() {
  local job=$1 next=20 start=$SECONDS code=0
  while kill -0 "${JOBS[$job]}" 2>/dev/null; do
    if ((SECONDS - start >= next)); then
      say "    $(tail -n 1 "$LOGS/$job.log") ($((SECONDS - START)) s so far)"
      next=$((next + 20))
    fi
    sleep 0.2
  done
  wait "${JOBS[$job]}" || code=$?
  unset "JOBS[$job]"
  if ((code)); then tail -n 200 "$LOGS/$job.log"; else say "    $(tail -n 1 "$LOGS/$job.log")"; fi
  return "$code"
}

shell_scripts() { git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck --external-sources; }

# Check that the library builds alone, only with the dependencies and features of its own manifest.
library() {
  cargo check --locked --quiet --package redlock-client &&
    cargo check --locked --quiet --package redlock-client --all-features
}

# --all-targets leaves out the tests that `cargo test` does not run.
lints() {
  cargo clippy --workspace --locked --quiet --all-targets -- -D warnings &&
    cargo clippy --workspace --locked --quiet --test e2e --test operator -- -D warnings
}

program() { cargo build --workspace --locked --quiet --bin redlock --test e2e; }

# Many tests wait most of their time, so more of them run at once than there are cores. tests/workspace.rs checks that no program is left out.
tests() { RUST_TEST_THREADS=$((4 * $(nproc))) cargo test --workspace --locked; }

servers() { "$ROOT/dev/api-servers.sh" local; }

# Each run takes the same seeds. The workflow `prove` runs 10,000.
simulation() { cargo test "${OPTIMIZED[@]}" --workspace --locked --test operator; }

docs() { RUSTDOCFLAGS='-D warnings' cargo doc --workspace --locked --quiet --no-deps --document-private-items; }

deny() { cargo deny --log-level warn --workspace --all-features check --hide-inclusion-graph bans licenses sources; }

# Make the release folder as `make release` does, but without optimization and for this machine's architecture.
release() { PROFILE=quick ARCHITECTURES=$(dpkg --print-architecture) DIST=$LOCAL/release "$ROOT/packaging/release.sh"; }

for program in cargo make git; do command -v $program >/dev/null || die "$program is needed"; done
if [[ ${CLUSTER:-local} == local ]]; then
  need_root
  command -v go >/dev/null || die "Go (1.25 or later) is needed to build the local cluster; or use CLUSTER=external"
fi

run "formatting" cargo fmt --all --check
background prepare
run "program and end-to-end tests" program
run "tools and programs of the cluster" finished prepare
background cluster
if command -v promtool >/dev/null; then
  run "alerts and dashboard" "$ROOT/dev/alerts.sh"
else
  skip "alerts and dashboard" "there is no promtool here"
fi
if command -v go >/dev/null; then
  run "module for Go" "$ROOT/dev/go.sh"
else
  skip "module for Go" "there is no Go here"
fi
run "cluster and operator" finished cluster
# Cargo lets the suite and the next build wait for each other, so the suite starts some seconds before the build.
background suite
# The end-to-end tests have time limits, and leave the cores idle for half of their time. Therefore all later steps have a lower priority.
renice --priority 10 $$ >/dev/null
if command -v shellcheck >/dev/null; then
  run "shell scripts" shell_scripts
else
  skip "shell scripts" "there is no shellcheck here"
fi
if cargo deny --version >/dev/null 2>&1; then
  run "licences, bans and sources" deny
else
  skip "licences, bans and sources" "there is no cargo-deny here; the workflow advisories has it"
fi
run "clippy" lints
run "library builds alone" library
run "documentation" docs
run "simulation of whole operators" simulation
run "other tests compile" cargo test --workspace --locked --quiet --no-run
if [[ ${CLUSTER:-local} == local ]]; then background servers; fi
if ((PACKAGING)); then
  run "image, by the Dockerfile's steps" "$ROOT/dev/dockerfile.sh"
  run "release folder" release
  if command -v go >/dev/null; then
    run "bundle for OLM" "$ROOT/dev/bundle.sh"
  else
    skip "bundle for OLM" "there is no Go here"
  fi
  if ((EUID == 0)); then
    run "packages in an empty root" "$ROOT/dev/packages.sh" "$LOCAL/release"
  else
    skip "packages in an empty root" "only root can install them"
  fi
else
  skip "image and release folder" "PACKAGING=0"
fi
run "end-to-end tests, suite main" finished suite
if [[ ${CLUSTER:-local} == local ]]; then
  run "API server of the cluster's version" finished servers
else
  skip "API server of the cluster's version" "it is built for the local cluster"
fi
run "unit, Redis and generated-file tests" tests
run "report in a browser" "$ROOT/dev/report-html.sh"
