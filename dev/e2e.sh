#!/usr/bin/env bash
# Runs an end-to-end suite. It starts the local cluster with the operator of this
# checkout. With CLUSTER=external it uses the cluster of KUBECONFIG. The last line
# is "N passed, N failed". The results are in .local/log/junit-SUITE.xml, or in the
# file that JUNIT names.
# usage: e2e.sh [SUITE] [FILTER] [OPTION...]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SUITE=${1:-main}
cd "$ROOT"
if [[ ${CLUSTER:-local} == local ]]; then export KUBECONFIG=$KUBECONFIG_LOCAL; fi
# `make e2e` already ran `make up` before it called this script.
if [[ -z ${MAKELEVEL:-} ]]; then make --no-print-directory up SUITE="$SUITE"; fi
if [[ $SUITE == clients || $SUITE == chaos ]]; then "$ROOT/dev/clients.sh"; fi
if [[ $SUITE == causes ]]; then needs prometheus prometheus; fi
if [[ $SUITE == clusters ]]; then "$ROOT/dev/clusters.sh" up; fi
if [[ $SUITE == cli || $SUITE == gate || $SUITE == clusters || $SUITE == failover ]]; then with_progress "Building the examples in Go" "$LOCAL/log/go-example.log" "$ROOT/dev/go.sh" example; fi

case ${CLUSTER:-local}/$SUITE in
  local/quorum) images=(redis redis-clock) ;;
  local/chaos | local/cli) images=(redis-clock) ;;
  local/edges | local/install) images=(operator-next) ;;
  *) images=() ;;
esac
if ((${#images[@]})); then
  "$ROOT/dev/image.sh" "${images[@]}"
  (cd "$IMAGES" && "$ROOT/dev/cluster.sh" load "${images[@]/%/.tar}")
fi
step "End-to-end tests, suite $SUITE"
# The build comes first, because a build during the tests would distort the measured times.
read -ra OPTIMIZED < <(make --no-print-directory optimized SUITE="$SUITE")
cargo build "${OPTIMIZED[@]}" --workspace --locked --quiet --test e2e
export JUNIT=${JUNIT:-$LOCAL/log/junit-$SUITE.xml}
exec cargo test "${OPTIMIZED[@]}" --workspace --locked --quiet --test e2e -- "$SUITE" "${@:2}"
