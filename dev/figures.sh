#!/usr/bin/env bash
# Measures the published program: its size, its start, its list of 2,000 locks, and the memory of an agent. It prints each figure with its
# bound, and fails if a figure exceeds its bound. The API server runs without an operator (alone.sh), so the script writes the status of
# the locks. Run nothing else on the machine.
#
# usage: dev/figures.sh [program] [lists] [agents]; with
#   PROGRAM=file     measures this program (default: the one that packaging/image.sh builds)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=alone.sh
. "$ROOT/dev/alone.sh"

LOCKS=2000
ROUNDS=21
KIND=redlock-operator.io/v1alpha1
OVER=0

# figure WHAT MEASURED BOUND UNIT
figure() {
  local verdict=ok
  [[ $2 =~ ^[0-9.]+$ ]] || die "$1: no measurement"
  if awk -v m="$2" -v b="$3" 'BEGIN { exit !(m >= b) }'; then verdict=OVER OVER=1; fi
  printf '%-58s %9s %-3s under %6s   %s\n' "$1" "$2" "$4" "$3" "$verdict"
}

# median: print the median of the numbers on the standard input.
median() { sort -n | awk '{ n[NR] = $1 } END { print NR % 2 ? n[(NR + 1) / 2] : (n[NR / 2] + n[NR / 2 + 1]) / 2 }'; }

# least FILE: print the smallest number of the file in milliseconds.
least() { sort -n "$1" | awk 'NR == 1 { printf "%.1f", $1 / 1000 }'; }

# time_of COMMAND...: print the median time of $ROUNDS runs in milliseconds.
time_of() {
  local round begun
  "$@" >/dev/null || die "$* failed"
  for ((round = 0; round < ROUNDS; round++)); do
    begun=${EPOCHREALTIME/./}
    "$@" >/dev/null
    printf '%s\n' $((${EPOCHREALTIME/./} - begun))
  done | median | awk '{ printf "%.1f", $1 / 1000 }'
}

api() { curl --silent --show-error --fail --insecure --header "Authorization: Bearer administrator" "$@"; }

# Print one lock, and below its status as the operator writes it.
lock() {
  local name=$1
  printf '{"apiVersion": "%s", "kind": "DistributedLock", "metadata": {"name": "%s", "namespace": "shop"},' "$KIND" "$name"
  printf '"spec": {"key": "%s", "ttl": "10s", "claim": {"identity": "worker-%s"}}}' "$name" "$name"
}
status() {
  local at=$1
  printf '{"status": {"observedGeneration": 1, "key": "shop/%s", "fencingToken": 1795284168033127, "acquiredAt": "%s", "renewedAt": "%s",' "$2" "$at" "$at"
  printf '"validUntil": "%s", "votes": "3/3", "votesGranted": 3, "memberCount": 3, "transitions": 1,' "$at"
  printf '"holder": {"identity": "worker-%s", "nonce": "0102030405060708090a", "key": "shop/%s",' "$2" "$2"
  printf '"quorum": {"namespace": "redlock-system", "name": "main", "uid": "00000000-0000-0000-0000-000000000001"}},'
  printf '"conditions": [{"type": "Ready", "status": "True", "reason": "Held", "message": "held by worker-%s", "lastTransitionTime": "%s"},' "$2" "${at%.*}Z"
  printf '{"type": "Held", "status": "True", "reason": "Held", "message": "held by worker-%s", "lastTransitionTime": "%s"}]}}' "$2" "${at%.*}Z"
}

# fill URL: create all locks over one connection.
fill() {
  local base=$1 index name at
  at=$(date -u +%Y-%m-%dT%H:%M:%S.000Z)
  mkdir "$WORK/locks"
  for ((index = 0; index < LOCKS; index++)); do
    name=lock-$index
    lock "$name" >"$WORK/locks/$index.json"
    status "$at" "$name" >"$WORK/locks/$index.status.json"
    printf 'next\nurl = "%s"\nrequest = POST\nheader = "Content-Type: application/json"\n' "$base"
    printf 'header = "Authorization: Bearer administrator"\ninsecure\nfail\nsilent\nshow-error\noutput = /dev/null\ndata = "@%s"\n' "$WORK/locks/$index.json"
    printf 'next\nurl = "%s/%s/status"\nrequest = PATCH\nheader = "Content-Type: application/merge-patch+json"\n' "$base" "$name"
    printf 'header = "Authorization: Bearer administrator"\ninsecure\nfail\nsilent\nshow-error\noutput = /dev/null\ndata = "@%s"\n' "$WORK/locks/$index.status.json"
  done | tail -n +2 >"$WORK/curl"
  curl --config "$WORK/curl"
}

# pages URL: print the API server's time for the list, without the time to connect. It requests the same pages as the command.
pages() {
  local token='' sum=0 times
  while :; do
    times=$(api --output "$WORK/page" --write-out '%{time_pretransfer} %{time_total}' "$1?limit=500${token:+&continue=$token}")
    sum=$(awk -v sum="$sum" '{ print sum + ($2 - $1) * 1000000 }' <<<"$times")
    token=$(jq -r '.metadata.continue // empty' "$WORK/page")
    if [[ -z $token ]]; then break; fi
  done
  printf '%s\n' "$sum"
}

list() { "$PROGRAM" list --all-namespaces --kubeconfig "$WORK/kubeconfig"; }

# Create the kinds, and a namespace for locks.
prepare() {
  k create namespace shop >/dev/null
  k apply --server-side -f "$ROOT/crds" >/dev/null
  wait_until 60 "the kinds" k wait --for=condition=Established --timeout=20s crd/distributedlocks.redlock-operator.io ||
    die "the kinds are not established"
}

# Other programs on the machine can slow both measurements. Therefore their rounds alternate, and the fastest round of each is the result.
lists() {
  local server round begun took own
  server=$(sed -n 's/.*server: "\(.*\)".*/\1/p' "$WORK/kubeconfig")
  step "Creating $LOCKS locks"
  fill "$server/apis/$KIND/namespaces/shop/distributedlocks"
  (($(list | wc -l) == LOCKS + 1)) || die "the list has not $LOCKS locks"
  for ((round = 0; round < ROUNDS; round++)); do
    begun=${EPOCHREALTIME/./}
    list >/dev/null
    printf '%s\n' $((${EPOCHREALTIME/./} - begun)) >>"$WORK/took"
    pages "$server/apis/$KIND/distributedlocks" >>"$WORK/own"
  done
  took=$(least "$WORK/took") own=$(least "$WORK/own")
  say "    redlock list: $took ms, of which the API server takes $own ms"
  if awk -v a="$took" -v b="$own" 'BEGIN { exit !(a < b) }'; then
    die "the API server alone took longer than the command with it: the machine is too busy to measure this"
  fi
  figure "redlock list of $LOCKS locks beyond the API server's time" "$(awk -v a="$took" -v b="$own" 'BEGIN { printf "%.1f", a - b }')" 300 ms
}

# memory PID WHAT: print the working set of a process in megabytes: its own pages, and the pages of the program that it uses. The kernel maps
# more pages of a program than it uses, and a container is not charged for the idle ones.
memory() {
  local kilobytes second
  printf '1\n' >"/proc/$1/clear_refs"
  questions
  # With a ttl of 10s the agent renews, or reads again, in this time. It forgets an application that sends no request for a ttl.
  for ((second = 0; second < 12; second++)); do
    leads || true
    sleep 1
  done
  questions
  kilobytes=$(awk '/^[0-9a-f]+-[0-9a-f]+ / { file = $6 ~ /^\// } $1 == "Anonymous:" { own += $2 } file && $1 == "Referenced:" { own += $2 }
    file && $1 == "Anonymous:" { twice += $2 } END { print own - twice }' "/proc/$1/smaps")
  say "    $(grep -E 'RssAnon|RssFile' "/proc/$1/status" | tr -s ' \t\n' ' ')"
  figure "$2" "$(awk -v k="$kilobytes" 'BEGIN { printf "%.1f", k * 1024 / 1000000 }')" 15 MB
}

# agent ARGUMENT...: start an agent, and register an application with it.
agent() {
  rm -f "$WORK/agent.sock"
  KUBECONFIG=$WORK/kubeconfig nice "$PROGRAM" agent --listen "unix:$WORK/agent.sock" "$@" 2>"$WORK/agent.log" &
  AGENT=$!
  PIDS+=("$AGENT")
  wait_until 20 "the agent" registered || { cat "$WORK/agent.log" >&2 && die "the agent does not answer"; }
}
ask() { curl --silent --fail --unix-socket "$WORK/agent.sock" --header 'X-Redlock: 1' "$@"; }
registered() { INSTANCE=$(ask --request POST http://localhost/register | jq -re .instance); }
leads() { ask --output /dev/null "http://localhost/leader?instance=$INSTANCE"; }

# Send a thousand requests.
questions() {
  local index
  wait_until 30 "the application leads" leads || { cat "$WORK/agent.log" >&2 && die "the application does not lead"; }
  for ((index = 0; index < 1000; index++)); do printf 'url = "http://localhost/leader?instance=%s"\noutput = /dev/null\n' "$INSTANCE"; done >"$WORK/questions"
  ask --config "$WORK/questions"
}

agents() {
  local index ports=() urls=() claim until
  for index in 0 1 2; do
    ports+=("$(free_port)")
    redis-server --save '' --appendonly no --bind 127.0.0.1 --port "${ports[index]}" >/dev/null &
    PIDS+=($!)
    urls+=("redis://127.0.0.1:${ports[index]}")
  done
  agent --lock shop/direct --direct --admit-at-once --members "$(IFS=,; printf '%s' "${urls[*]}")"
  memory "$AGENT" "working set of an agent, straight from the members"
  kill "$AGENT"
  wait "$AGENT" 2>/dev/null || true

  agent --lock shop/claimed --ttl 10s --identity me
  wait_until 20 "the claim" claimed || die "the agent makes no claim"
  claim=$(k --namespace shop get dlock --output name | grep claimed-)
  status "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)" claimed >"$WORK/granted.json"
  while :; do
    until=$(date -u -d '+9 seconds' +%Y-%m-%dT%H:%M:%S.000Z)
    jq --arg until "$until" '.status.validUntil = $until' "$WORK/granted.json" >"$WORK/renewed.json"
    k --namespace shop patch "$claim" --subresource=status --type merge --patch-file "$WORK/renewed.json" >/dev/null 2>&1 || break
    sleep 2
  done &
  PIDS+=($!)
  memory "$AGENT" "working set of an agent, by a claim"
}
claimed() { k --namespace shop get dlock --output name | grep claimed-; }

WHAT=${*:-program lists agents}
if [[ -z ${PROGRAM:-} ]]; then
  with_progress "Building the program that is published" "$LOCAL/log/figures-build.log" nice "$ROOT/packaging/image.sh" amd64 "$LOCAL/figures-image"
  PROGRAM=$LOCAL/figures-image/usr/local/bin/redlock
fi
step "Figures of $PROGRAM, on $(nproc) processors"
figure "size of the program" "$(awk -v b="$(stat --printf %s "$PROGRAM")" 'BEGIN { printf "%.1f", b / 1000000 }')" 25 MB
figure "start of the command: redlock --version" "$(time_of "$PROGRAM" --version)" 50 ms
figure "start of the command: redlock completions bash" "$(time_of "$PROGRAM" completions bash)" 50 ms
start "$BIN/kube-apiserver"
prepare
if [[ $WHAT == *lists* ]]; then lists; fi
if [[ $WHAT == *agents* ]]; then agents; fi
((OVER == 0))
