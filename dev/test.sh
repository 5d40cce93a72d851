#!/usr/bin/env bash
# Runs all checks: lints, documentation, all tests, and the end-to-end suite on the
# local cluster. At the end it prints a summary. The quick steps come first, and the
# first failure is the end. Background jobs build the programs that take minutes the
# first time (those of the cluster, cargo-deny, and the API servers of the last steps).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# A shell starts its background jobs with SIGINT ignored, and every program inherits that. Tests that interrupt a command would never end.
if [[ -z ${SIGNALS_ARE_DEFAULT:-} ]]; then
  SIGNALS_ARE_DEFAULT=1 exec env --default-signal=INT --default-signal=QUIT "${BASH_SOURCE[0]}" "$@"
fi

DENY_VERSION=0.20.2
DENY=$BIN/cargo-deny
LOGS=$LOCAL/log
mkdir -p "$BIN" "$LOGS"
cd "$ROOT"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
START=$SECONDS
SUMMARY=()
FAILED=0
declare -A JOBS=() # process number of each background job

# ------------------------------------------------------------------ summary ---

note() { SUMMARY+=("$(printf '%-38s %-8s %6s' "$1" "$2" "$3")"); }

summary() {
  local line
  if ((${#JOBS[@]})); then kill "${JOBS[@]}" 2>/dev/null || true; fi
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

# With 1 the script also checks the image, the release folder and the API servers of the support matrix, in a quarter of an hour.
PACKAGING=${PACKAGING:-1}

# Install and build the tools. This takes minutes on a fresh machine, and later a second.
prepare() {
  if [[ ${CLUSTER:-local} == local ]]; then
    "$ROOT/dev/setup.sh"
    needs shellcheck shellcheck
    needs chromium chromium
    needs promtool prometheus
  fi
  if command -v go >/dev/null; then "$ROOT/dev/go.sh" build; fi
  # The step that needs cargo-public-api checks again whether it exists.
  "$ROOT/dev/library.sh" fetch api || say "cargo-public-api cannot be fetched"
  cargo_tool cargo-deny "$DENY_VERSION" "$DENY" --version
}

# Install and build the tools of the last steps. The tests mostly wait, so this takes little of their time.
prepare_packaging() {
  nice "$ROOT/packaging/release.sh" fetch
  if command -v go >/dev/null; then "$ROOT/dev/bundle.sh" fetch; fi
  if [[ ${CLUSTER:-local} == local ]]; then
    needs rpmbuild rpm lintian
    "$ROOT/dev/setup.sh" servers
  fi
}

# background JOB: run this function in the background.
background() {
  "$1" >"$LOGS/$1.log" 2>&1 &
  JOBS[$1]=$!
}
# finished JOB: wait for its end, and print its progress.
finished() {
  local job=$1 waited=0 next=20 start=$SECONDS code=0
  while kill -0 "${JOBS[$job]}" 2>/dev/null; do
    if ((SECONDS - start >= next)); then
      say "    $(tail -n 1 "$LOGS/$job.log") ($((SECONDS - START)) s so far)"
      next=$((next + 20)) waited=1
    fi
    sleep 0.2
  done
  wait "${JOBS[$job]}" || code=$?
  unset "JOBS[$job]"
  if ((code)); then tail -n 25 "$LOGS/$job.log"; elif ((waited)); then say "    done"; fi
  return "$code"
}

shell_scripts() { git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck --external-sources; }

# Check that the library builds alone, only with the dependencies and features of its own manifest.
library() {
  cargo check --locked --quiet --package redlock-client &&
    cargo check --locked --quiet --package redlock-client --all-features
}

# The end-to-end tests are not in --all-targets, because they need a cluster.
lints() {
  cargo clippy --workspace --locked --quiet --all-targets -- -D warnings &&
    cargo clippy --workspace --locked --quiet --test e2e -- -D warnings
}

# Check that all test programs ran: those that tests/workspace.rs names, and tests/workspace.rs itself.
tests() {
  local named run
  cargo test --workspace --locked 2>&1 | tee "$LOGS/tests.log" || return 1
  named=$(($(sed -n 's/^const TEST_BINARIES: .*; \([0-9]*\)\].*/\1/p' tests/workspace.rs) + 1))
  run=$(grep -c '^     Running' "$LOGS/tests.log")
  ((run == named)) || die "$run programs of tests have run, tests/workspace.rs names $named"
}

docs() { RUSTDOCFLAGS='-D warnings' cargo doc --workspace --locked --quiet --no-deps --document-private-items; }

# Check the builds for macOS and Windows. If their standard libraries cannot be fetched, the step is skipped.
targets() {
  if "$ROOT/dev/targets.sh" fetch; then
    run "compiles for macOS and Windows" "$ROOT/dev/targets.sh"
  else
    skip "compiles for macOS and Windows" "rustup cannot fetch their standard libraries here"
  fi
}

# of_library NAME CHECK: run a check of dev/library.sh. If its tool cannot be fetched, the step is skipped.
of_library() {
  if "$ROOT/dev/library.sh" fetch "$2"; then
    run "$1" "$ROOT/dev/library.sh" "$2"
  else
    skip "$1" "its tool cannot be fetched here"
  fi
}

deny() { "$DENY" --log-level warn --workspace --all-features check --hide-inclusion-graph bans licenses sources; }

# Make the release folder as `make release` does, but without optimization and for this machine's architecture.
release() { PROFILE=quick ARCHITECTURES=$(dpkg --print-architecture) DIST=$LOCAL/release "$ROOT/packaging/release.sh"; }

up() { make --no-print-directory up >"$LOGS/up.log" 2>&1 || { tail -n 40 "$LOGS/up.log" && return 1; }; }

for program in cargo make git; do command -v $program >/dev/null || die "$program is needed"; done
if [[ ${CLUSTER:-local} == local ]]; then
  need_root
  command -v go >/dev/null || die "Go (1.25 or later) is needed to build the local cluster; or use CLUSTER=external"
fi

run "formatting" cargo fmt --all --check
background prepare
run "clippy" lints
run "library builds alone" library
targets
run "library's package" "$ROOT/dev/library.sh" package
of_library "library with its oldest compiler" oldest
of_library "library with the least versions that it declares" least
run "documentation" docs
run "tools and programs of the cluster" finished prepare
if ((PACKAGING)); then background prepare_packaging; fi
if command -v shellcheck >/dev/null; then
  run "shell scripts" shell_scripts
else
  skip "shell scripts" "there is no shellcheck here"
fi
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
run "licences, bans and sources" deny
of_library "library's public items" api
run "unit, Redis and generated-file tests" tests
run "report in a browser" "$ROOT/dev/report-html.sh"
if ((PACKAGING)); then
  run "tools of the next steps" finished prepare_packaging
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
  if [[ ${CLUSTER:-local} == local ]]; then
    run "API servers, oldest to newest" "$ROOT/dev/api-servers.sh"
  else
    skip "API servers, oldest to newest" "they are built for the local cluster"
  fi
else
  skip "image, release folder, API servers" "PACKAGING=0"
fi
run "cluster and operator" up
run "end-to-end tests, suite main" "$ROOT/dev/e2e.sh" main
