#!/usr/bin/env bash
# Checks the chart's alert rules with promtool: each alert fires during its fault, and clears after it. It also checks the queries of the
# dashboard, as recording rules. promtool is in Debian's package prometheus.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
CHART=charts/redlock-operator
QUERIES=$(mktemp --suffix=.yaml)
trap 'rm -f "$QUERIES"' EXIT

promtool check rules "$CHART/files/alerts.yaml"
promtool test rules tests/chart/alerts.yaml
# The JSON strings need no conversion, because YAML has the same strings.
{
  printf 'groups: [{name: dashboard, rules: [\n'
  grep -o '"expr": "\([^"\\]\|\\.\)*"' "$CHART/files/dashboard.json" | awk '{ printf "{record: query_%d, %s},\n", NR, $0 }'
  printf ']}]\n'
} >"$QUERIES"
promtool check rules "$QUERIES"
