#!/usr/bin/env bash
# Checks the module for controllers in Go (go/) and its examples: formatting, vet, and tests. The tests start an API server of the local
# cluster's version, with an etcd. Go keeps the results while nothing has changed, so a second run takes a moment.
#
# usage: dev/go.sh [build|example|newest]    `build` compiles and vets all of it, `example` puts the examples into .local/go, for the suites `cli`,
#        `gate`, `clusters` and `failover`, `newest` compiles a copy with the newest client-go and controller-runtime
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v go >/dev/null || die "Go (1.25 or later) is needed for the module in go/; see https://go.dev/dl/"
MODULES=("$ROOT/go" "$ROOT/go/examples")
# The modules stay separate, because the examples require a newer Go than the module.
export GOWORK=off

# The tests depend on the CRDs outside the module. Go runs them again when this variable changes.
REDLOCK_KINDS=$(cat "$ROOT"/crds/*.yaml | sha256sum | cut -d' ' -f1)
export REDLOCK_KINDS
if [[ -x $BIN/kube-apiserver ]]; then
  export REDLOCK_KUBE_APISERVER=$BIN/kube-apiserver
elif [[ ${CLUSTER:-local} == local && $# == 0 ]]; then
  die "kube-apiserver is missing: run dev/setup.sh first"
fi

checks() {
  local module unformatted
  for module in "${MODULES[@]}"; do
    unformatted=$(gofmt -l "$module")
    [[ -z $unformatted ]] || die "run gofmt -w on $unformatted"
    go -C "$module" mod tidy -diff || die "run go mod tidy in ${module#"$ROOT"/}"
    go -C "$module" vet "${GO_QUICK[@]}" ./...
    # The tests spend most of their time waiting, so they run in parallel.
    go -C "$module" test "${GO_QUICK[@]}" -vet=off -parallel 8 ./...
  done
}

# A module that uses this one can require later versions than go.mod.
newest() {
  local copy=$LOCAL/go-newest module
  rm -rf "$copy" && cp -r "$ROOT/go" "$copy"
  "${GO_COMPILER[@]}" -C "$copy" get k8s.io/client-go@latest k8s.io/apimachinery@latest
  "${GO_COMPILER[@]}" -C "$copy/examples" get sigs.k8s.io/controller-runtime@latest k8s.io/client-go@latest k8s.io/apimachinery@latest k8s.io/api@latest
  for module in "$copy" "$copy/examples"; do
    go -C "$module" mod tidy
    "${GO_COMPILER[@]}" -C "$module" vet "${GO_QUICK[@]}" ./...
    "${GO_COMPILER[@]}" -C "$module" test "${GO_QUICK[@]}" -run '^$' ./...
    grep -E '^\s(k8s.io/client-go|sigs.k8s.io/controller-runtime) ' "$module/go.mod"
  done
}

case ${1:-} in
  '') checks ;;
  newest) newest ;;
  build)
    for module in "${MODULES[@]}"; do
      "${GO_COMPILER[@]}" -C "$module" vet "${GO_QUICK[@]}" ./...
      "${GO_COMPILER[@]}" -C "$module" test "${GO_QUICK[@]}" -vet=off -run '^$' ./... >/dev/null
    done
    ;;
  example) "${GO_COMPILER[@]}" -C "$ROOT/go/examples" build "${GO_QUICK[@]}" -o "$LOCAL/go/" ./controller ./elector ./manager ;;
  *) die "usage: go.sh [build|example|newest]" ;;
esac
