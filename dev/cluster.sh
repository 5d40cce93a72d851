#!/usr/bin/env bash
# Runs a Kubernetes cluster on this machine: a control plane, and three nodes with real
# kubelets and containerd. Each is a "machine" with its own namespaces (cluster/init.sh).
# A bridge connects the machines, and they reach no other network.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NODES=${NODES:-3}
# Clusters on one network have different numbers (clusters.sh).
NUMBER=${CLUSTER_NUMBER:-1}
CP_IP=10.99.$NUMBER.1
node_ip() { printf '10.99.%d.%d' "$NUMBER" $((10 + $1)); }
POD_CIDR=10.$((244 + NUMBER)).0.0/16
node_pods() { printf '10.%d.%d.0/24' $((244 + NUMBER)) "$1"; }
SERVICE_CIDR=10.$((96 + NUMBER)).0.0/16
KUBERNETES_SERVICE_IP=10.$((96 + NUMBER)).0.1
DNS_IP=10.$((96 + NUMBER)).0.10

# shellcheck source-path=SCRIPTDIR source=cluster/machines.sh
. "$ROOT/dev/cluster/machines.sh"
# shellcheck source-path=SCRIPTDIR source=cluster/network.sh
. "$ROOT/dev/cluster/network.sh"
# shellcheck source-path=SCRIPTDIR source=cluster/control-plane.sh
. "$ROOT/dev/cluster/control-plane.sh"
# shellcheck source-path=SCRIPTDIR source=cluster/nodes.sh
. "$ROOT/dev/cluster/nodes.sh"
# shellcheck source-path=SCRIPTDIR source=cluster/faults.sh
. "$ROOT/dev/cluster/faults.sh"
# shellcheck source-path=SCRIPTDIR source=cluster/pki.sh
. "$ROOT/dev/cluster/pki.sh"

usage() {
  cat <<'EOF'
usage: dev/cluster.sh COMMAND
  up                              start the cluster, or find it running
  down                            stop it; keeps the built programs and images
  status                          what is running
  load IMAGE.tar...               give images to the nodes that do not have them
  kubectl ARGUMENT...             kubectl against this cluster
faults:
  node-cut N | node-heal N        pull node N's network cable | plug it in again
  apiserver-stop | apiserver-start
  apiserver-pause | apiserver-resume
                                  SIGSTOP | SIGCONT to the API server
  kubelet-stop N | kubelet-start N
  kill-container NAMESPACE POD CONTAINER
                                  SIGKILL to the container's first process
  pause-container | resume-container NAMESPACE POD CONTAINER
                                  SIGSTOP | SIGCONT to the container's processes
inside:
  in-node N -- COMMAND...         run a command in node N (ctr, nft, ip, ps, ...)
  on-node N -- COMMAND...         run a command of this machine on node N, with the
                                  cluster's DNS, like a client on that node
  in-network N -- COMMAND...      run one with the network of node N, and nothing else of it
  in-cp -- COMMAND...             run one on the control plane; reaches pods
                                  and Services by address
EOF
}

kubectl_local() { KUBECONFIG=$KUBECONFIG_LOCAL "$BIN/kubectl" "$@"; }

all_machines_run() {
  local m
  for m in $(machines); do machine_pid "$m" >/dev/null || return 1; done
}

nodes_ready() {
  local ready
  ready=$(kubectl_local get nodes -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' 2>/dev/null | grep -c True)
  ((ready == NODES))
}

up() {
  local i m tar prepare start=$SECONDS
  need_root
  for i in /run /var/lib /var/log /proc /sys; do
    if [[ $ROOT == "$i"/* ]]; then die "the checkout is in $i, which the cluster's machines replace with their own; move it elsewhere"; fi
  done
  for i in kube coredns; do [[ -x $BIN/$i ]] || die "not built yet; run dev/setup.sh (make up does)"; done
  for tar in pause coredns valkey; do
    [[ -e $IMAGES/$tar.tar ]] || "$ROOT/dev/image.sh" "$tar"
  done

  if [[ -e $RUN/wired ]] && all_machines_run; then
    step "The cluster exists. Starting its missing parts"
  else
    if [[ -e $RUN ]]; then
      step "Clearing away a cluster that did not end well"
      clear_away
    fi
    step "Starting the cluster"
    modprobe -qa overlay veth bridge nf_tables 2>/dev/null || true
    mkdir -p "$RUN"
    for m in $(machines); do machine_start "$m"; done
    control_plane_network
    for i in $(seq "$NODES"); do
      node_network "$i"
      cgroups_make "node$i"
      node_config "$i"
    done
    make_pki
    : >"$RUN/wired"
  fi

  start_etcd
  start_apiserver
  port_forward
  (umask 077 && kubeconfig admin "https://127.0.0.1:$(cat "$RUN/port")" >"$KUBECONFIG_LOCAL")
  on_nodes node_prepare &
  prepare=$!
  wait_for_api
  start_controllers
  wait "$prepare" || die "containerd does not come up or does not take the images; see ${RUN#"$ROOT"/}/log"
  on_nodes start_kubelet
  on_nodes start_kube_proxy
  sed "s/^  clusterIP: .*/  clusterIP: $DNS_IP/" "$ROOT/dev/cluster/dns.yaml" | kubectl_local apply -f - >/dev/null
  wait_until 60 "the nodes" nodes_ready || { log_tail node1 kubelet && die "the nodes do not get ready"; }
  kubectl_local -n kube-system rollout status daemonset/coredns --timeout=60s >/dev/null ||
    die "CoreDNS does not come up; see dev/cluster.sh kubectl -n kube-system describe pods"
  step "Kubernetes is up with $NODES nodes, after $((SECONDS - start)) s"
}

# Kill the forwarder and the machines, with all their processes. It finds them by their
# command lines, which contain this cluster's path, because a PID file can be lost.
clear_away() {
  local pid args
  if pid=$(forwarder_pid); then kill -KILL "$pid" || true; fi
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    mapfile -d '' -t args 2>/dev/null <"/proc/$pid/cmdline" || continue
    # This matches the interpreter with the script, and not the `unshare` that waits for it.
    if [[ ${args[0]:-} == *bash && ${args[1]:-} == "$ROOT/dev/cluster/init.sh" && ${args[3]:-} == "$RUN"/* || ${args[0]:-} == "$FORWARDER_NAME" ]]; then
      kill -KILL "$pid" 2>/dev/null || true
    fi
  done
  wait_until 20 "the end of the machines' cgroups" cgroups_remove || warn "some cgroups named $CLUSTER_ID are left in /sys/fs/cgroup"
  # A process can still write a file between the signal and its end.
  wait_until 20 "the removal of $RUN" run_removed || die "cannot remove $RUN"
}
run_removed() { rm -rf "$RUN" 2>/dev/null; }

down() {
  need_root
  if [[ ! -e $RUN ]]; then say "No cluster is running."; fi
  clear_away
  rm -f "$KUBECONFIG_LOCAL"
}

status() {
  local m d pid
  if ! all_machines_run; then
    say "The cluster is not running."
    return 1
  fi
  for m in $(machines); do
    for d in $([[ $m == cp ]] && echo etcd kube-apiserver kube-controller-manager kube-scheduler socat || echo containerd kubelet kube-proxy); do
      printf '%-6s %-24s %s\n' "$m" "$d" "$(daemon_pid "$m" "$d" >/dev/null && echo running || echo STOPPED)"
    done
    if [[ $m == node* ]] && ! enter cp ip link show "$m" | grep -q 'state UP'; then
      printf '%-6s %-24s %s\n' "$m" network CUT
    fi
  done
  pid=$(forwarder_pid) && printf '%-6s %-24s %s\n' host "127.0.0.1:$(cat "$RUN/port")" "forwarded by process $pid"
  kubectl_local get nodes --request-timeout=5s
}

load() {
  local tar
  need_root
  (($#)) || die "usage: dev/cluster.sh load IMAGE.tar..."
  all_machines_run || die "the cluster is not running"
  for tar in "$@"; do
    [[ -e $tar ]] || die "$tar: no such file"
    step "Loading $(basename "$tar")"
    on_nodes node_load "$(realpath "$tar")" || die "could not load $tar"
  done
}

locked() {
  mkdir -p "$LOCAL"
  exec 9>"$LOCAL/lock"
  flock -n 9 || { say "Waiting for another up, down or load." && flock 9; }
  "$@"
}

case ${1:-} in
  up | down | load) locked "$@" ;;
  status) status ;;
  kubectl) shift && kubectl_local "$@" ;;
  node-cut) node_number "${2:-}" && enter cp ip link set "node$2" down ;;
  node-heal) node_number "${2:-}" && enter cp ip link set "node$2" up ;;
  apiserver-stop) daemon_stop cp kube-apiserver ;;
  apiserver-pause) signal_daemon STOP cp kube-apiserver ;;
  apiserver-resume) signal_daemon CONT cp kube-apiserver ;;
  apiserver-start) start_apiserver && wait_for_api ;;
  kubelet-stop) node_number "${2:-}" && daemon_stop "node$2" kubelet ;;
  kubelet-start) node_number "${2:-}" && start_kubelet "$2" ;;
  kill-container) (($# == 4)) || die "usage: kill-container NAMESPACE POD CONTAINER" && signal_container KILL "${@:2}" ;;
  pause-container) (($# == 4)) || die "usage: pause-container NAMESPACE POD CONTAINER" && signal_container STOP "${@:2}" ;;
  resume-container) (($# == 4)) || die "usage: resume-container NAMESPACE POD CONTAINER" && signal_container CONT "${@:2}" ;;
  in-node | on-node | in-network | in-cp) "${1//-/_}" "${@:2}" ;;
  -h | --help | help) usage ;;
  *) usage >&2 && exit 2 ;;
esac
