#!/usr/bin/env bash
# Checks the module for controllers in Go (go/) and its example: formatting, vet, and the tests, for which it starts an API server of the
# local cluster's version alone, with an etcd. Go keeps the results while nothing has changed, so a second run takes a moment.
#
# usage: dev/go.sh [build|example|newest]    `build` compiles all of it, `example` puts the examples into .local/go, for the suites `cli`,
#        `gate`, `clusters` and `failover`, `newest` compiles a copy with the newest client-go and controller-runtime
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v go >/dev/null || die "Go (1.25 or later) is needed for the module in go/; see https://go.dev/dl/"
MODULES=("$ROOT/go" "$ROOT/go/examples")
# The example asks for a newer Go than the module does.
export GOWORK=off

# What the tests depend on besides the module's files, so that Go runs them again when it changes.
REDLOCK_KINDS=$(cat "$ROOT"/crds/*.yaml | sha256sum | cut -d' ' -f1)
export REDLOCK_KINDS
if [[ -x $BIN/kube-apiserver ]] && command -v etcd >/dev/null; then
  export REDLOCK_KUBE_APISERVER=$BIN/kube-apiserver
elif [[ ${CLUSTER:-local} == local && $# == 0 ]]; then
  die "kube-apiserver or etcd is missing: run dev/setup.sh first"
fi

checks() {
  local module unformatted
  for module in "${MODULES[@]}"; do
    unformatted=$(gofmt -l "$module")
    [[ -z $unformatted ]] || die "run gofmt -w on $unformatted"
    go -C "$module" mod tidy -diff || die "run go mod tidy in ${module#"$ROOT"/}"
    go -C "$module" vet ./...
    # They wait much, and compute little.
    go -C "$module" test -parallel 8 ./...
  done
}

# A module that uses this one can ask for any later version than go.mod does.
newest() {
  local copy=$LOCAL/go-newest module
  rm -rf "$copy" && cp -r "$ROOT/go" "$copy"
  nice go -C "$copy" get k8s.io/client-go@latest k8s.io/apimachinery@latest
  nice go -C "$copy/examples" get sigs.k8s.io/controller-runtime@latest k8s.io/client-go@latest k8s.io/apimachinery@latest k8s.io/api@latest
  for module in "$copy" "$copy/examples"; do
    go -C "$module" mod tidy
    nice go -C "$module" vet ./...
    nice go -C "$module" test -run '^$' ./...
    grep -E '^\s(k8s.io/client-go|sigs.k8s.io/controller-runtime) ' "$module/go.mod"
  done
}

case ${1:-} in
  '') checks ;;
  newest) newest ;;
  build) for module in "${MODULES[@]}"; do nice go -C "$module" test -run '^$' ./... >/dev/null; done ;;
  example) nice go -C "$ROOT/go/examples" build -trimpath -o "$LOCAL/go/" ./controller ./elector ./manager ;;
  *) die "usage: go.sh [build|example|newest]" ;;
esac
