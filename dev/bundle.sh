#!/usr/bin/env bash
# Checks the bundle for the Operator Lifecycle Manager with the validator of the Operator Framework. The check fails on each error and on
# each warning, except two. One warns that an option of the validator is deprecated. The other confuses rules on Events and
# PodDisruptionBudgets with rules on a removed version of the API, because rules contain no version.
#
# usage: dev/bundle.sh; it needs Go and Helm
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VERSION=0.30.0
command -v go >/dev/null || die "Go is needed"
if [[ $(go version -m "$BIN/operator-verify" 2>/dev/null) != *"operator-framework/api"*"v$VERSION"* ]]; then
  GOBIN=$BIN "${GO_COMPILER[@]}" install "${GO_QUICK[@]}" "github.com/operator-framework/api/cmd/operator-verify@v$VERSION"
fi
command -v helm >/dev/null || die "helm is needed"
"$ROOT/packaging/bundle.sh" "$LOCAL/olm"
output=$("$BIN/operator-verify" manifests --object_validate --operatorhub_validate "$LOCAL/olm/bundle" 2>&1) || die "$output"
rest=$(grep -E 'level=(warning|error)' <<<"$output" | grep -v -e 'removed in v1.25' -e 'validator is deprecated' || true)
[[ -z $rest ]] || die "$rest"
say "    the validator accepts the bundle"
