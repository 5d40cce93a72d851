#!/usr/bin/env bash
# Creates a cluster with kind, which needs Docker, instead of the cluster of dev/cluster.sh. The project's continuous integration has no
# Docker, so it does not test this script.
#
#   dev/kind.sh up      cluster, image, and a kubeconfig in .local/kind
#   dev/kind.sh down    removes the cluster
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NAME=redlock
DIRECTORY=$LOCAL/kind
export KUBECONFIG=$DIRECTORY/kubeconfig
for program in docker kind kubectl helm; do
  command -v "$program" >/dev/null || die "$program is needed for CLUSTER=kind"
done

up() {
  mkdir -p "$DIRECTORY"
  if ! kind get clusters | grep -qx "$NAME"; then
    step "A cluster of three nodes"
    cat >"$DIRECTORY/cluster.yaml" <<'END'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}, {role: worker}]
END
    kind create cluster --name "$NAME" --config "$DIRECTORY/cluster.yaml" --wait 2m
  fi
  step "The operator's image"
  docker build --tag "${IMAGE:?}" "$ROOT"
  kind load docker-image --name "$NAME" "$IMAGE"
}

case ${1:-} in
  up) up ;;
  down) kind delete cluster --name "$NAME" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
