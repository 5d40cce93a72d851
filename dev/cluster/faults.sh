# shellcheck shell=bash
# Injects faults into nodes and containers, and runs commands inside machines. Sourced by cluster.sh.

node_number() { [[ ${1:-} =~ ^[0-9]+$ && $1 -ge 1 && $1 -le $NODES ]] || die "which node? 1 to $NODES"; }

# signal_container SIGNAL NAMESPACE POD CONTAINER
signal_container() {
  local signal=$1 namespace=$2 pod=$3 container=$4 node id pid pids
  read -r node id < <(kubectl_local -n "$namespace" get pod "$pod" -o \
    jsonpath="{.spec.nodeName} {.status.initContainerStatuses[?(@.name==\"$container\")].containerID}{.status.containerStatuses[?(@.name==\"$container\")].containerID}{'\\n'}") ||
    die "$namespace/$pod: no such pod"
  [[ $id == containerd://* ]] || die "$namespace/$pod has no running container named $container"
  id=${id#containerd://}
  pid=$(ctr_node "${node#node}" tasks ls | awk -v id="$id" '$1 == id && $3 != "STOPPED" { print $2 }')
  [[ -n $pid ]] || die "$namespace/$pod $container: not running on $node"
  pids=$pid
  if [[ $signal != KILL ]]; then
    # A freeze must also stop the forked processes of the container.
    pids=$(ctr_node "${node#node}" tasks ps "$id" | awk 'NR > 1 { print $1 }')
  fi
  # shellcheck disable=SC2086  # a list of numbers
  enter "$node" kill "-$signal" $pids
  say "sent SIG$signal to $namespace/$pod $container (process $pid in $node)"
}

# in_node N [--] COMMAND...: run a command in the namespaces of the node.
in_node() {
  local node
  node_number "${1:-}" && node=node$1 && shift
  [[ ${1:-} != -- ]] || shift
  enter "$node" "${@:?which command?}"
}

# on_node N [--] COMMAND...: run a command of this machine on the node, with the cluster's DNS.
on_node() {
  local node
  node_number "${1:-}" && node=node$1 && shift
  [[ ${1:-} != -- ]] || shift
  printf 'nameserver %s\nsearch svc.cluster.local cluster.local\noptions ndots:5\n' "$DNS_IP" >"$RUN/$node/resolv.conf"
  # shellcheck disable=SC2016  # for the inner shell to expand
  enter "$node" unshare --mount sh -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' \
    "$RUN/$node/resolv.conf" "${@:?which command?}"
}

# in_network N [--] COMMAND...: replace this process by a command on the node's network. A signal to this process reaches the command.
in_network() {
  local pid
  node_number "${1:-}"
  pid=$(machine_pid "node$1") || die "node$1 is not running; see dev/cluster.sh status"
  shift
  [[ ${1:-} != -- ]] || shift
  exec nsenter --target "$pid" --net -- "${@:?which command?}"
}

# in_cp [--] COMMAND...: run a command in the namespaces of the control plane.
in_cp() {
  [[ ${1:-} != -- ]] || shift
  enter cp "${@:?which command?}"
}
