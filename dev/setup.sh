#!/usr/bin/env bash
# Installs the Debian packages for the local cluster, and builds Kubernetes, etcd, CoreDNS
# and Helm from the Go module registry. It skips everything that exists already, so a second
# run takes a second.
# usage: setup.sh [servers]   with `servers` also the API servers of the oldest Kubernetes that the chart supports, and of the newest
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PACKAGES=(
  containerd runc containernetworking-plugins nftables iproute2 socat util-linux
  openssl ca-certificates
  redis-server redis-tools busybox-static gcc libc6-dev musl-tools # for the images
)

install_packages() {
  local p missing=()
  command -v dpkg-query >/dev/null ||
    die "the local cluster is made for Debian 12 and its relatives; elsewhere use CLUSTER=external"
  for p in "${PACKAGES[@]}"; do
    [[ $(dpkg-query -Wf '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
  done
  ((${#missing[@]})) || return 0

  apt_install "${missing[@]}"
}

# module_version MODULE [FOLDER]: print the version that go.mod pins.
module_version() {
  awk -v m="$1" '$1 == m { print $2; exit }' "$ROOT/dev/${2:-kube}/go.mod"
}

# go_binary NAME LABEL PACKAGE LDFLAGS [FOLDER]: build $BIN/NAME unless it was built from
# the same sources.
go_binary() {
  local name=$1 label=$2 package=$3 ldflags=$4 folder=$ROOT/dev/${5:-kube} sum
  sum=$( (
    cd "$folder"
    cat go.mod go.sum
    if [[ $package == ./* || $package == . ]]; then cat "$package"/*.go; fi
    printf '%s\n' "$package" "$ldflags" "${GO_QUICK[@]}"
  ) | sha256sum | cut -d' ' -f1)
  if [[ -x $BIN/$name && $(cat "$BIN/.$name.built-from" 2>/dev/null) == "$sum" ]]; then return; fi

  command -v go >/dev/null || die "Go (1.25 or later) is needed to build $label; see https://go.dev/dl/"
  with_progress "$label" "$LOCAL/log/build-$name.log" \
    "${GO_COMPILER[@]}" -C "$folder" build "${GO_QUICK[@]}" -ldflags "-s -w $ldflags" -o "$BIN/$name" "$package"
  printf '%s\n' "$sum" >"$BIN/.$name.built-from"
}

# Without these flags the version of the API server is v0.0.0-master, and clients that
# check the version fail.
version_flags() {
  local part
  for part in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf ' -X %s.gitVersion=%s -X %s.gitMajor=1' "$part" "$1" "$part"
    printf ' -X %s.gitMinor=%s -X %s.gitTreeState=clean' "$part" "$(cut -d. -f2 <<<"$1")" "$part"
    printf ' -X %s.buildDate=2026-01-01T00:00:00Z' "$part"
  done
}

build_servers() {
  local which version
  for which in oldest newest; do
    version=$(module_version k8s.io/kubernetes "kube-$which")
    go_binary "kube-apiserver-$which" "Building the API server of Kubernetes $version (some 4 minutes the first time)" . \
      "$(version_flags "$version")" "kube-$which"
  done
}

build_binaries() {
  local kubernetes etcd helm coredns flags part
  kubernetes=$(module_version k8s.io/kubernetes)
  etcd=$(module_version go.etcd.io/etcd/server/v3)
  helm=$(module_version helm.sh/helm/v3)
  coredns=$(module_version github.com/coredns/coredns)
  flags=$(version_flags "$kubernetes")
  go_binary kube "Building Kubernetes $kubernetes and etcd $etcd (some 5 minutes the first time)" . "$flags"
  for part in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -sfn kube "$BIN/$part"
  done
  go_binary coredns "Building CoreDNS $coredns" ./coredns "-X github.com/coredns/coredns/coremain.GitCommit=local"
  go_binary helm "Building Helm $helm" helm.sh/helm/v3/cmd/helm \
    "-X helm.sh/helm/v3/internal/version.version=$helm"
}

need_root
mkdir -p "$BIN" "$LOCAL/log"
install_packages
build_binaries
if [[ ${1:-} == servers ]]; then build_servers; fi
