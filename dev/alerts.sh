#!/usr/bin/env bash
# Checks the rules of the chart with promtool: each alert fires by its fault and clears after it. It also checks the queries of the
# dashboard, as rules that record them. promtool is in Debian's package prometheus.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
CHART=charts/redlock-operator
QUERIES=$(mktemp --suffix=.yaml)
trap 'rm -f "$QUERIES"' EXIT

promtool check rules "$CHART/files/alerts.yaml"
promtool test rules tests/chart/alerts.yaml
# A JSON string is a string in YAML.
{
  printf 'groups: [{name: dashboard, rules: [\n'
  grep -o '"expr": "\([^"\\]\|\\.\)*"' "$CHART/files/dashboard.json" | awk '{ printf "{record: query_%d, %s},\n", NR, $0 }'
  printf ']}]\n'
} >"$QUERIES"
promtool check rules "$QUERIES"
