#!/usr/bin/env bash
# Installs or upgrades the operator's Helm chart. The local cluster gets the images
# built here. With CLUSTER=external the chart's own image is used, or IMAGE.
# usage: deploy.sh [HELM ARGUMENT...]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

RELEASE=redlock-operator NAMESPACE=redlock-system
# Each test has its own namespace, with quorums and clients.
arguments=(--set jobs.enabled=true --set 'quorumNamespaces={*}' --set 'clientNamespaces={*}')
image=${IMAGE:-}
if [[ ${CLUSTER:-local} == local ]]; then
  export KUBECONFIG=$KUBECONFIG_LOCAL
  image=${image:-$OPERATOR_IMAGE}
  arguments+=(--set image.pullPolicy=IfNotPresent
    --set "redis.image.repository=${MEMBER_IMAGE%:*}" --set-string "redis.image.tag=${MEMBER_IMAGE##*:}")
else
  [[ -n ${KUBECONFIG:-} ]] || die "CLUSTER=external needs KUBECONFIG"
  for program in helm kubectl; do command -v $program >/dev/null || die "$program is needed with CLUSTER=external"; done
fi
if [[ -n $image ]]; then
  # The tag follows the last colon, unless that colon precedes a registry's port.
  [[ ${image##*/} == *:* ]] || image=$image:latest
  arguments+=(--set "image.repository=${image%:*}" --set-string "image.tag=${image##*:}")
fi

# The local image's tag stays the same, so Kubernetes would not start new pods for a
# new build. Therefore the script stores the checksum of the last deployed build.
built=$(sha256sum "$IMAGES/operator.tar" 2>/dev/null | cut -d' ' -f1 || true)
deployed=$(cat "$RUN/deployed-operator" 2>/dev/null || true)
restart=false
if [[ ${CLUSTER:-local} == local && -n $deployed && $deployed != "$built" ]]; then restart=true; fi

step "Installing the operator (release $RELEASE, namespace $NAMESPACE)"
if [[ $restart == true ]]; then
  kubectl -n "$NAMESPACE" rollout restart deployment --selector "app.kubernetes.io/instance=$RELEASE" >/dev/null
fi
helm upgrade --install "$RELEASE" "$ROOT/charts/redlock-operator" \
  --namespace "$NAMESPACE" --create-namespace --wait --timeout "${TIMEOUT:-5m}" \
  "${arguments[@]}" "$@" >/dev/null || {
  kubectl -n "$NAMESPACE" get pods -o wide >&2 || true
  kubectl -n "$NAMESPACE" logs --selector "app.kubernetes.io/instance=$RELEASE" --tail=20 --prefix >&2 || true
  die "the operator does not come up"
}
if [[ ${CLUSTER:-local} == local ]]; then printf '%s\n' "$built" >"$RUN/deployed-operator"; fi
kubectl -n "$NAMESPACE" get deployments
