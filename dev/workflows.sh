#!/usr/bin/env bash
# Checks the workflows of GitHub. actionlint checks syntax, expressions and shell, and zizmor the permissions. Both come from their package
# registries.
#
# usage: dev/workflows.sh; it needs Go, and Python with venv
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ACTIONLINT_VERSION=1.7.12
ZIZMOR_VERSION=1.32.0
TOOLS=$SHARED/workflows
cd "$ROOT"
for program in go python3; do command -v $program >/dev/null || die "$program is needed"; done

if [[ $("$TOOLS/actionlint" -version 2>/dev/null | head -n 1) != "v$ACTIONLINT_VERSION" ]]; then
  GOBIN=$TOOLS go install "github.com/rhysd/actionlint/cmd/actionlint@v$ACTIONLINT_VERSION"
fi
if [[ $("$TOOLS/python/bin/zizmor" --version 2>/dev/null) != "zizmor $ZIZMOR_VERSION" ]]; then
  python3 -m venv "$TOOLS/python"
  "$TOOLS/python/bin/pip" install --quiet "zizmor==$ZIZMOR_VERSION"
fi
"$TOOLS/actionlint" .github/workflows/*.yaml
"$TOOLS/python/bin/zizmor" --offline --quiet .github/workflows
