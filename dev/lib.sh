# shellcheck shell=bash
# Variables and functions of all scripts in this folder: paths, names of images, messages.
# shellcheck disable=SC2034  # other scripts use the variables

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# The folder of builds and running clusters, which git ignores. In a worktree it can be a link to that of another one.
SHARED=$(realpath -m "$ROOT/.local")
BIN=$SHARED/bin          # kube, coredns, helm and the links to kube
IMAGES=$SHARED/images    # one tar per image
# The folder of one cluster. A second cluster on this machine has another folder (clusters.sh).
LOCAL=$(realpath -m "${REDLOCK_LOCAL:-$SHARED}")
PKI=$LOCAL/pki           # stays after `down`
RUN=$LOCAL/run           # the running cluster; `down` removes it
KUBECONFIG_LOCAL=$LOCAL/kubeconfig

# Garbage collection takes a quarter of the time of the Go compiler.
GO_COMPILER=(env GOGC=400 GOMEMLIMIT=2GiB go)
# Without debug information and without inlining, Kubernetes compiles in seven tenths of the time. Its API server then needs a sixth more CPU time
# for a request. All builds have the same flags, so that they share compiled packages.
GO_QUICK=(-trimpath -gcflags=all="-dwarf=false -l" -gcflags=std=-dwarf=false)

# Options of cargo for tests that need the operator's speed.
OPTIMIZED=(--config "$ROOT/dev/optimized.toml")

# A shell without root's PATH lacks the folders of system programs.
export PATH=$BIN:$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Names on this machine contain a hash of the checkout's path, so two checkouts can
# have separate clusters.
CLUSTER_ID=rl$(cksum <<<"${LOCAL%/.local}" | awk '{ printf "%04x", $1 % 65536 }')

# Members run Valkey of the minor version that the chart installs.
MEMBER_IMAGE=redlock-operator.local/valkey:8.1
REDIS_IMAGE=redlock-operator.local/redis:7.0
REDIS_CLOCK_IMAGE=redlock-operator.local/redis-clock:7.0
OPERATOR_IMAGE=redlock-operator.local/redlock-operator:dev
OPERATOR_NEXT_IMAGE=redlock-operator.local/redlock-operator:next
COREDNS_IMAGE=redlock-operator.local/coredns:dev
PAUSE_IMAGE=redlock-operator.local/pause:1

# Programs and libraries of dev/redis.sh.
NEWER_REDIS=$LOCAL/redis
# Print the dynamic loader of these programs.
redis_loader() { printf '%s\n' "$NEWER_REDIS"/usr/lib/*-linux-gnu/ld-linux-*.so.*; }

say() { printf '%s\n' "$*"; }
step() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# with_progress WHAT LOG COMMAND...: run a long command with its output in LOG, and print a line every 20 s.
# If the command fails, print the end of LOG.
with_progress() {
  local what=$1 log=$2 start=$SECONDS pid next=20
  shift 2
  step "$what"
  "$@" >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - start >= next)); then
      say "    still at it after $((SECONDS - start)) s (output: ${log#"$ROOT"/})"
      next=$((next + 20))
    fi
  done
  if ! wait "$pid"; then
    tail -n 25 "$log" >&2
    die "$what: failed after $((SECONDS - start)) s; the whole output is in ${log#"$ROOT"/}"
  fi
  if ((SECONDS - start >= 5)); then say "    done in $((SECONDS - start)) s"; fi
}

# cargo_tool CRATE VERSION COMMAND...: build the program of a crate, unless COMMAND prints this version of it.
cargo_tool() {
  local crate=$1 version=$2
  shift 2
  if [[ $("$@" 2>/dev/null) != "$crate "?(v)"$version" ]]; then
    step "Building $crate $version (some minutes the first time)"
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --debug --locked --version "=$version" --root "$LOCAL" "$crate"
  fi
}

# apt_install PACKAGE...: install Debian packages. Debian starts a service when it installs it. A temporary policy forbids that, unless the
# machine has its own policy.
apt_install() (
  policy=/usr/sbin/policy-rc.d
  umask 022
  mkdir -p "$LOCAL/log"
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  export DEBIAN_FRONTEND=noninteractive
  with_progress "Updating the package lists" "$LOCAL/log/apt-update.log" apt-get update
  with_progress "Installing $*" "$LOCAL/log/apt-install.log" apt-get install -y --no-install-recommends --no-remove "$@"
)

# needs PROGRAM PACKAGE...: install Debian packages unless the program is on the PATH.
needs() {
  if ! command -v "$1" >/dev/null; then apt_install "${@:2}"; fi
}

# wait_until SECONDS WHAT COMMAND...: poll until the command succeeds.
wait_until() {
  local limit=$1 what=$2 start=$SECONDS next=20
  shift 2
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS - start >= limit)); then
      warn "$what: not within $limit s"
      return 1
    fi
    if ((SECONDS - start >= next)); then
      say "    waiting for $what, $((SECONDS - start)) s"
      next=$((next + 20))
    fi
    sleep 0.2
  done
}

need_root() {
  if ((EUID != 0)); then
    die "needs root: namespaces, cgroups and containers. Try sudo, or CLUSTER=external with a KUBECONFIG of your own."
  fi
}
