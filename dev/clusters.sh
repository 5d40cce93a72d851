#!/usr/bin/env bash
# Runs two local clusters on one network, with three Redis masters in the first and two in the second. Each operator uses all five masters.
#
# usage: dev/clusters.sh COMMAND
#   up                    start both, or find them running; the first one is that of `make up`
#   down                  stop the second one, and remove the masters and the quorum from the first one
#   one | two COMMAND...  dev/cluster.sh for that cluster
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECOND=$LOCAL/second
MASTERS=$LOCAL/masters
# The name is not NAMESPACE, because commands of cluster.sh get another variable of that name.
MASTERS_NAMESPACE=shared
# A master listens in the network of its node, so its address does not change.
ADDRESSES=(10.99.1.11 10.99.1.12 10.99.1.13 10.99.2.11 10.99.2.12)

# in_cluster one|two COMMAND...: run a command for that cluster.
in_cluster() {
  local which=$1
  shift
  case $which in
    one) "$@" ;;
    two) REDLOCK_LOCAL=$SECOND CLUSTER_NUMBER=2 NODES=2 "$@" ;;
    *) die "which cluster? one or two" ;;
  esac
}
cluster() { in_cluster "$1" "$ROOT/dev/cluster.sh" "${@:2}"; }

# peer one|two: the PID on the host of that cluster's control plane.
peer() {
  local run=$RUN
  [[ $1 == one ]] || run=$SECOND/run
  cut -d' ' -f1 "$run/cp/pid"
}

# Connect the two control planes, which route for their nodes and pods.
link() {
  local subnet
  if ! cluster one in-cp ip link show peer >/dev/null 2>&1; then
    ip link add peer netns "$(peer one)" type veth peer name peer netns "$(peer two)"
    cluster one in-cp ip addr add 10.99.0.1/30 dev peer
    cluster two in-cp ip addr add 10.99.0.2/30 dev peer
    cluster one in-cp ip link set peer up
    cluster two in-cp ip link set peer up
    for subnet in 10.99.2.0/24 10.246.0.0/16; do cluster one in-cp ip route add "$subnet" via 10.99.0.2; done
    for subnet in 10.99.1.0/24 10.245.0.0/16; do cluster two in-cp ip route add "$subnet" via 10.99.0.1; done
  fi
}
# Create one certificate authority, one certificate for all masters, and the password of the operators' user.
secrets() {
  [[ ! -e $MASTERS/password ]] || return 0
  (umask 077 && mkdir -p "$MASTERS")
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout "$MASTERS/ca.key" -out "$MASTERS/ca.crt" \
    -subj "/CN=masters" -days 3650 2>/dev/null
  openssl req -x509 -CA "$MASTERS/ca.crt" -CAkey "$MASTERS/ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
    -keyout "$MASTERS/tls.key" -out "$MASTERS/tls.crt" -subj "/CN=master" -days 3650 \
    -addext "subjectAltName=$(printf 'IP:%s,' "${ADDRESSES[@]}" | sed 's/,$//')" -addext "basicConstraints=critical,CA:false" 2>/dev/null
  (umask 077 && openssl rand -hex 24 >"$MASTERS/password")
}

# Print the manifests of this cluster's masters, which are pods on its nodes.
masters() {
  local which=$1 prefix=10.99.1. address node=0
  [[ $which == one ]] || prefix=10.99.2.
  for address in "${ADDRESSES[@]}"; do
    [[ $address == "$prefix"* ]] || continue
    node=$((node + 1))
    cat <<END
---
apiVersion: v1
kind: Pod
metadata: {name: master-$node, namespace: $MASTERS_NAMESPACE, labels: {app: master}}
spec:
  nodeName: node$node
  hostNetwork: true
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  volumes: [{name: master, secret: {secretName: master}}]
  containers:
  - name: redis
    image: $MEMBER_IMAGE
    imagePullPolicy: IfNotPresent
    command: [redis-server, --port, "0", --tls-port, "6379", --bind, $address, --save, "", --maxmemory-policy, noeviction,
      --aclfile, /master/users.acl, --tls-cert-file, /master/tls.crt, --tls-key-file, /master/tls.key, --tls-ca-cert-file, /master/ca.crt,
      --tls-auth-clients, "no"]
    volumeMounts: [{name: master, mountPath: /master, readOnly: true}]
END
  done
}

quorum() {
  local number=0 address
  cat <<END
apiVersion: redlock-operator.io/v1alpha1
kind: RedisQuorum
metadata: {name: shared, namespace: $MASTERS_NAMESPACE}
spec:
  members: 0
  maxTTL: 30s
  keys: Verbatim
  allowedNamespaces: {from: All}
  external:
END
  for address in "${ADDRESSES[@]}"; do
    number=$((number + 1))
    printf '  - {name: master-%d, address: "%s:6379", secretRef: {name: operator}, tls: {secretRef: {name: operator}}}\n' "$number" "$address"
  done
}

furnish() {
  local which=$1 acl
  # docs/external.md has the same ACL for the owner of a master.
  acl="user redlock reset on >$(cat "$MASTERS/password") ~* resetchannels -@all +ping +info +evalsha +script|load +get +set +del +pexpire +pttl +time +type +client|no-evict"
  cluster "$which" kubectl create namespace "$MASTERS_NAMESPACE" --dry-run=client -o yaml | cluster "$which" kubectl apply -f - >/dev/null
  {
    cluster "$which" kubectl -n "$MASTERS_NAMESPACE" create secret generic master --dry-run=client -o yaml --from-file="$MASTERS/ca.crt" \
      --from-file="$MASTERS/tls.crt" --from-file="$MASTERS/tls.key" --from-file=users.acl=<(printf 'user default off\n%s\n' "$acl")
    printf -- '---\n'
    cluster "$which" kubectl -n "$MASTERS_NAMESPACE" create secret generic operator --dry-run=client -o yaml --from-file="$MASTERS/ca.crt" \
      --from-literal=username=redlock --from-file=password=<(tr -d '\n' <"$MASTERS/password") |
      sed 's|^metadata:|metadata:\n  labels: {redlock-operator.io/quorum: shared}|'
    masters "$which"
  } | cluster "$which" kubectl apply -f - >/dev/null
  quorum | cluster "$which" kubectl apply -f - >/dev/null
}

up() {
  local which
  need_root
  mkdir -p "$SECOND/log"
  cluster one up
  cluster two up
  link
  secrets
  for which in one two; do
    cluster "$which" load "$IMAGES/operator.tar"
    in_cluster "$which" "$ROOT/dev/deploy.sh" --set leaseGate.enabled=true
    furnish "$which"
  done
  for which in one two; do
    cluster "$which" kubectl -n "$MASTERS_NAMESPACE" wait --for=condition=Ready rq/shared --timeout=180s
  done
}

down() {
  # The end of the second control plane also removes the connection.
  cluster two down
  cluster one kubectl delete namespace "$MASTERS_NAMESPACE" --ignore-not-found --timeout=120s || true
}

case ${1:-} in
  up) up ;;
  down) down ;;
  one) exec "$ROOT/dev/cluster.sh" "${@:2}" ;;
  two) exec env REDLOCK_LOCAL="$SECOND" CLUSTER_NUMBER=2 NODES=2 "$ROOT/dev/cluster.sh" "${@:2}" ;;
  *) sed -n '4,8s/^# \?//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
