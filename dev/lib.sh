# shellcheck shell=bash
# Shared by the scripts here: where things are, and how to tell the user about them.
# shellcheck disable=SC2034  # the variables are for those that source this

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# All that is built or runs, ignored by git. A worktree may link to that of another.
SHARED=$(realpath -m "$ROOT/.local")
BIN=$SHARED/bin          # kube, coredns, helm and the links to kube
IMAGES=$SHARED/images    # one tar per image
# What belongs to one cluster. A second one beside it has another folder (clusters.sh).
LOCAL=$(realpath -m "${REDLOCK_LOCAL:-$SHARED}")
PKI=$LOCAL/pki           # kept from one `up` to the next
RUN=$LOCAL/run           # the running cluster; `down` removes it
KUBECONFIG_LOCAL=$LOCAL/kubeconfig

export PATH=$BIN:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH

# Names on this machine carry a hash of the checkout's path, so two checkouts
# can each have a cluster without touching the other's.
CLUSTER_ID=rl$(cksum <<<"${LOCAL%/.local}" | awk '{ printf "%04x", $1 % 65536 }')

REDIS_IMAGE=redlock-operator.local/redis:7.0
REDIS_CLOCK_IMAGE=redlock-operator.local/redis-clock:7.0
VALKEY_IMAGE=redlock-operator.local/valkey:8.0
OPERATOR_IMAGE=redlock-operator.local/redlock-operator:dev
OPERATOR_NEXT_IMAGE=redlock-operator.local/redlock-operator:next
COREDNS_IMAGE=redlock-operator.local/coredns:dev
PAUSE_IMAGE=redlock-operator.local/pause:1

say() { printf '%s\n' "$*"; }
step() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# with_progress WHAT LOG COMMAND...: run a long command with its output in LOG,
# and say every 20 s that it is still at it; show the log's end when it fails.
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
    cargo install --quiet --debug --locked --version "=$version" --root "$LOCAL" "$crate"
  fi
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
