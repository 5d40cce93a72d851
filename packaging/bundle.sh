#!/usr/bin/env bash
# Writes the bundle for the Operator Lifecycle Manager, and the admission policies that a bundle cannot contain. manifests/olm is generated
# from the chart.
#
# usage: packaging/bundle.sh DIRECTORY; the results are bundle/ and policies.yaml in it
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
(($# == 1)) || {
  printf 'usage: packaging/bundle.sh DIRECTORY\n' >&2
  exit 1
}
rm -rf "$1/bundle"
mkdir -p "$1"
cp -r "$ROOT/manifests/olm" "$1/bundle"
for crd in "$ROOT"/crds/*.yaml; do cp "$crd" "$1/bundle/manifests/redlock-operator.io_${crd##*/}"; done

policies=()
for template in "$ROOT"/charts/redlock-operator/templates/admission-*.yaml; do
  # A template whose value is off renders nothing, and then helm fails.
  if helm template redlock-operator "$ROOT/charts/redlock-operator" --namespace redlock-system --kube-version 1.30.0 \
    --show-only "templates/${template##*/}" >"$1/policies.part" 2>/dev/null; then
    policies+=("$(cat "$1/policies.part")")
  fi
done
rm -f "$1/policies.part"
printf '%s\n' "${policies[@]}" >"$1/policies.yaml"
grep -q '^kind: ValidatingAdmissionPolicyBinding' "$1/policies.yaml"
