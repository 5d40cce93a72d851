#!/usr/bin/env bash
# A Kubernetes cluster on this machine: a control plane and three nodes with real
# kubelets and containerd, each a "machine" of its own (machine.sh), joined by a
# bridge, with no way out to any other network.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NODES=${NODES:-3}
# A cluster that shares a network with another one has another number (clusters.sh).
NUMBER=${CLUSTER_NUMBER:-1}
CP_IP=10.99.$NUMBER.1
node_ip() { printf '10.99.%d.%d' "$NUMBER" $((10 + $1)); }
POD_CIDR=10.$((244 + NUMBER)).0.0/16
node_pods() { printf '10.%d.%d.0/24' $((244 + NUMBER)) "$1"; }
SERVICE_CIDR=10.$((96 + NUMBER)).0.0/16
KUBERNETES_SERVICE_IP=10.$((96 + NUMBER)).0.1
DNS_IP=10.$((96 + NUMBER)).0.10

# shellcheck source-path=SCRIPTDIR source=pki.sh
. "$ROOT/dev/pki.sh"

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
                                  cluster's DNS: what a client on that node sees
  in-cp -- COMMAND...             run one beside the control plane; reaches pods
                                  and Services by address
EOF
}

kubectl_local() { KUBECONFIG=$KUBECONFIG_LOCAL "$BIN/kubectl" "$@"; }

# ---------------------------------------------------------------- machines ---

machines() { printf 'cp\n' && seq -f 'node%g' "$NODES"; }

# started_at PID: together with the PID, this names one process for good.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# machine_pid NAME: this host's PID of the machine's first process, if it lives.
machine_pid() {
  local pid start
  read -r pid start 2>/dev/null <"$RUN/$1/pid" || return 1
  [[ $(started_at "$pid") == "$start" ]] || return 1
  printf '%s\n' "$pid"
}

machine_start() {
  local name=$1 dir=$RUN/$1 parent pid
  mkdir -p "$dir" "$RUN/log"
  setsid unshare --mount --net --pid --uts --fork --mount-proc --propagation slave \
    "$ROOT/dev/machine.sh" "$name" "$dir" </dev/null >"$RUN/log/$name-machine.log" 2>&1 9>&- &
  parent=$!
  wait_until 10 "machine $name" test -e "$dir/ready" ||
    { cat "$RUN/log/$name-machine.log" >&2 && die "cannot make the machine $name"; }
  pid=$(ps -o pid= --ppid "$parent" | tr -d ' ')
  printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$dir/pid"
}

# enter MACHINE COMMAND...: run a command inside a machine.
enter() {
  local pid
  pid=$(machine_pid "$1") || die "$1 is not running; see dev/cluster.sh status"
  nsenter --target "$pid" --mount --net --pid --uts -- "${@:2}"
}

# daemon_pid MACHINE NAME: the PID, inside the machine, of a daemon that runs.
daemon_pid() {
  local machine pid name
  machine=$(machine_pid "$1") || return 1
  read -r pid 2>/dev/null <"$RUN/$1/$2.pid" || return 1
  name=$(tr '\0' '\n' 2>/dev/null <"/proc/$machine/root/proc/$pid/cmdline" | head -n 1) || return 1
  [[ ${name##*/} == "$2" ]] || return 1
  printf '%s\n' "$pid"
}

# launch MACHINE NAME COMMAND...: start a command in a machine and leave it alone; prints its PID there.
launch() {
  # shellcheck disable=SC2016  # for the inner shell to expand
  enter "$1" bash -c '
    log=$1 cd=$2; shift 2; cd "$cd"
    setsid nice -n -10 "$@" </dev/null >>"$log" 2>&1 9>&- & echo $!
  ' - "$RUN/log/$1-$2.log" "$RUN" "${@:3}"
}

# daemon MACHINE COMMAND...: start a daemon in a machine unless it runs already.
daemon() {
  local machine=$1 name=${2##*/}
  shift
  if daemon_pid "$machine" "$name" >/dev/null; then return; fi
  launch "$machine" "$name" "$@" >"$RUN/$machine/$name.pid"
}

# supervised MACHINE COMMAND...: a daemon that is started again when it ends. The scheduler does so of its own accord when it cannot make
# sense of what it sees after an outage of the API server. The lock is for an `up` in the second between two lives.
supervised() {
  local machine=$1 name=${2##*/}
  shift
  if daemon_pid "$machine" "$name" >/dev/null; then return; fi
  # shellcheck disable=SC2016  # for the inner shell to expand
  launch "$machine" "$name" bash -c '
    pid=$1; shift
    exec 8>"$pid.lock"
    flock -n 8 || exit
    while :; do
      "$@" 8>&- &
      echo $! >"$pid"
      wait $!
      sleep 1
    done
  ' - "$RUN/$machine/$name.pid" "$@" >/dev/null
  wait_until 10 "$name" daemon_pid "$machine" "$name"
}

# daemon_stop MACHINE NAME: kill it, as a crash would, and wait until it is gone.
daemon_stop() {
  local pid
  pid=$(daemon_pid "$1" "$2") || return 0
  enter "$1" kill -KILL "$pid"
  # shellcheck disable=SC2310
  wait_until 10 "the end of $2" daemon_gone "$1" "$2"
}
# signal_daemon SIGNAL MACHINE NAME
signal_daemon() {
  local pid
  pid=$(daemon_pid "$2" "$3") || die "$3 does not run in $2"
  enter "$2" kill "-$1" "$pid"
}
daemon_gone() { ! daemon_pid "$1" "$2" >/dev/null; }

log_tail() {
  printf -- '--- the end of %s\n' "${RUN#"$ROOT"/}/log/$1-$2.log" >&2
  tail -n 15 "$RUN/log/$1-$2.log" >&2 || true
}

# ----------------------------------------------------------------- network ---

control_plane_network() {
  enter cp bash -euc "
    ip link set lo up
    ip link add br0 type bridge
    ip addr add $CP_IP/24 dev br0
    ip link set br0 up
    echo 1 >/proc/sys/net/ipv4/ip_forward"
}

# Pods have /32 routes of their own through the node (the CNI plugin ptp, not
# bridge): all their packets pass the node's IP layer, so Services work between
# two pods of one node too, and nft rules can cut any pair apart.
node_network() {
  local i=$1 j cp node
  cp=$(machine_pid cp) node=$(machine_pid "node$i")
  ip link add "node$i" netns "$cp" type veth peer name eth0 netns "$node"
  enter cp bash -euc "
    ip link set node$i master br0 up
    ip route add $(node_pods "$i") via $(node_ip "$i")"
  enter "node$i" bash -euc "
    ip link set lo up
    ip addr add $(node_ip "$i")/24 dev eth0
    ip link set eth0 up
    ip route add default via $CP_IP
    echo 1 >/proc/sys/net/ipv4/ip_forward"
  for j in $(seq "$NODES"); do
    ((i == j)) || enter "node$i" ip route add "$(node_pods "$j")" via "$(node_ip "$j")"
  done
}

# The host reaches the API server alone, through a loopback port: one socat
# listens there, another stands inside the control plane, and a socket file,
# which knows no network namespaces, joins them.
FORWARDER_NAME="socat for ${LOCAL%/.local}" # what ps shows, and how clear_away knows it
port_forward() {
  local port
  daemon cp socat "UNIX-LISTEN:api.sock,fork,unlink-early,backlog=128,mode=0600" TCP:127.0.0.1:6443,nodelay
  if forwarder_pid >/dev/null; then return; fi
  for port in ${API_PORT:-$(seq 18443 18499)}; do
    if listening "$port"; then continue; fi
    # shellcheck disable=SC2016
    (
      cd "$RUN"
      setsid bash -c 'echo $$ >forwarder.pid; exec -a "$0" "$@"' "$FORWARDER_NAME" \
        socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork,nodelay,backlog=128" UNIX-CONNECT:api.sock \
        </dev/null >"$RUN/log/forwarder.log" 2>&1 9>&- &
    )
    if wait_until 2 "port $port" listening "$port" && sleep 0.1 && forwarder_pid >/dev/null; then
      printf '%s\n' "$port" >"$RUN/port"
      return
    fi
  done
  die "no free loopback port for the API server; set API_PORT"
}
listening() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
forwarder_pid() {
  local pid
  read -r pid 2>/dev/null <"$RUN/forwarder.pid" || return 1
  [[ $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$RUN" && $(cat "/proc/$pid/comm") == socat ]] || return 1
  printf '%s\n' "$pid"
}

# ----------------------------------------------------------- control plane ---

start_etcd() {
  # No fsync: this cluster's data need not survive the machine.
  daemon cp etcd --data-dir "$RUN/cp/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --log-level warn
}

start_apiserver() {
  daemon cp "$BIN/kube-apiserver" \
    --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address="$CP_IP" --bind-address=0.0.0.0 --secure-port=6443 \
    --service-cluster-ip-range="$SERVICE_CIDR" \
    --tls-cert-file="$PKI/kube-apiserver.crt" --tls-private-key-file="$PKI/kube-apiserver.key" \
    --client-ca-file="$PKI/ca.crt" --anonymous-auth=false \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$PKI/service-accounts.key" \
    --service-account-signing-key-file="$PKI/service-accounts.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" \
    --kubelet-client-certificate="$PKI/kube-apiserver-kubelet.crt" \
    --kubelet-client-key="$PKI/kube-apiserver-kubelet.key" \
    --kubelet-preferred-address-types=InternalIP \
    --cert-dir="$RUN/cp" --allow-privileged=true
}

start_controllers() {
  supervised cp "$BIN/kube-controller-manager" \
    --kubeconfig="$PKI/kube-controller-manager.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 \
    --cert-dir="$RUN/cp" --use-service-account-credentials \
    --service-account-private-key-file="$PKI/service-accounts.key" --root-ca-file="$PKI/ca.crt" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --node-monitor-period=2s --node-monitor-grace-period=20s
  supervised cp "$BIN/kube-scheduler" \
    --kubeconfig="$PKI/kube-scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 \
    --cert-dir="$RUN/cp"
}

api_ready() { kubectl_local get --raw /readyz --request-timeout=2s; }

wait_for_api() {
  wait_until 90 "the API server" api_ready || { log_tail cp etcd && log_tail cp kube-apiserver && die "the API server does not come up"; }
}

# ------------------------------------------------------------------- nodes ---

# A cgroup per node in every hierarchy. Two kubelets with one root between them
# would kill each other's pods.
cgroup_hierarchies() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    printf '/sys/fs/cgroup\n'
  else
    findmnt -rno TARGET -t cgroup,cgroup2 | grep '^/sys/fs/cgroup/'
  fi
}
cgroups_make() {
  local hierarchy group file
  for hierarchy in $(cgroup_hierarchies); do
    for group in "$CLUSTER_ID" "$CLUSTER_ID/$1"; do
      mkdir -p "$hierarchy/$group"
      # cgroup v1: a new cpuset is empty and takes no process until it is filled.
      for file in cpuset.cpus cpuset.mems; do
        if [[ -e $hierarchy/cpuset.sched_load_balance ]]; then cat "$hierarchy/$file" >"$hierarchy/$group/$file"; fi
      done
      # A build beside the cluster must not starve it: what runs in pods is small, and answers within milliseconds or is late.
      if [[ -e $hierarchy/$group/cpu.shares ]]; then echo 16384 >"$hierarchy/$group/cpu.shares"; fi
      # cgroup v2: hand the controllers down.
      if [[ $hierarchy == /sys/fs/cgroup ]]; then
        sed 's/\([a-z]\+\)/+\1/g' "$hierarchy/cgroup.controllers" >"$hierarchy/cgroup.subtree_control" 2>/dev/null || true
        sed 's/\([a-z]\+\)/+\1/g' "$hierarchy/$group/cgroup.controllers" >"$hierarchy/$group/cgroup.subtree_control" 2>/dev/null || true
        if [[ -e $hierarchy/$group/cpu.weight ]]; then echo 1600 >"$hierarchy/$group/cpu.weight"; fi
      fi
    done
  done
}
cgroups_remove() {
  local hierarchy
  for hierarchy in $(cgroup_hierarchies); do
    [[ ! -d $hierarchy/$CLUSTER_ID ]] || find "$hierarchy/$CLUSTER_ID" -depth -type d -exec rmdir {} +
  done
}

node_config() {
  local i=$1 dir=$RUN/node$1
  mkdir -p "$dir/cni"
  cat >"$dir/cni/10-ptp.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(node_pods "$i")"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
EOF
  # restrict_oom_score_adj: in a container, root may lack CAP_SYS_RESOURCE.
  cat >"$dir/containerd.toml" <<EOF
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
EOF
  # Faults should show within seconds: short leases, and restarts of a container
  # that dies again and again at most 5 s apart. The disk is the host's and not
  # for kubelet to tidy: no eviction, no image garbage collection.
  cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/node$i.crt
tlsPrivateKeyFile: $PKI/node$i.key
cgroupDriver: cgroupfs
cgroupRoot: /$CLUSTER_ID/node$i
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/volume-plugins
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
resolvConf: ""
enforceNodeAllocatable: []
evictionHard: {}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 10
syncFrequency: 10s
crashLoopBackOff: {maxContainerRestartPeriod: 5s}
shutdownGracePeriod: 0s
EOF
  cat >"$dir/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $PKI/kube-proxy.kubeconfig}
clusterCIDR: $POD_CIDR
hostnameOverride: node$i
# The limits are the host's, and not ours to change.
conntrack: {maxPerCore: 0, min: 0}
EOF
}

ctr_node() { enter "node$1" ctr --namespace k8s.io "${@:2}"; }

start_containerd() {
  daemon "node$1" containerd --config "$RUN/node$1/containerd.toml"
  wait_until 30 "containerd of node$1" ctr_node "$1" version || { log_tail "node$1" containerd && return 1; }
}

start_kubelet() {
  daemon "node$1" "$BIN/kubelet" --config "$RUN/node$1/kubelet.yaml" --kubeconfig "$PKI/node$1.kubeconfig" \
    --node-ip "$(node_ip "$1")" --hostname-override "node$1"
}

start_kube_proxy() { daemon "node$1" "$BIN/kube-proxy" --config "$RUN/node$1/kube-proxy.yaml"; }

# Everything of a node that does not need the API server.
node_prepare() {
  local tar
  start_containerd "$1"
  for tar in pause coredns redis; do node_load "$1" "$IMAGES/$tar.tar" >/dev/null; done
}

# node_load N TAR: import an image unless the node has got this very one.
node_load() {
  local i=$1 tar=$2 stamp sum
  stamp=$RUN/node$i/image-$(basename "$tar" .tar) sum=$(sha256sum "$tar" | cut -d' ' -f1)
  if [[ $(cat "$stamp" 2>/dev/null) == "$sum" ]]; then
    say "    node$i has it"
    return
  fi
  ctr_node "$i" images import "$tar" >/dev/null || return 1
  printf '%s\n' "$sum" >"$stamp"
  say "    node$i loaded it"
}

# on_nodes FUNCTION ARGUMENT...: call it for every node at the same time.
on_nodes() {
  local i pids=() failed=0
  for i in $(seq "$NODES"); do
    "$1" "$i" "${@:2}" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=1; done
  return "$failed"
}

# ---------------------------------------------------------------- commands ---

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
  for tar in pause coredns redis; do
    [[ -e $IMAGES/$tar.tar ]] || "$ROOT/dev/image.sh" "$tar"
  done

  if [[ -e $RUN/wired ]] && all_machines_run; then
    step "The cluster is there; starting what may be missing"
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
  sed "s/^  clusterIP: .*/  clusterIP: $DNS_IP/" "$ROOT/dev/dns.yaml" | kubectl_local apply -f - >/dev/null
  wait_until 60 "the nodes" nodes_ready || { log_tail node1 kubelet && die "the nodes do not get ready"; }
  kubectl_local -n kube-system rollout status daemonset/coredns --timeout=60s >/dev/null ||
    die "CoreDNS does not come up; see dev/cluster.sh kubectl -n kube-system describe pods"
  step "Kubernetes is up with $NODES nodes, after $((SECONDS - start)) s"
}

# Kill the machines, and with them all that runs in them, and the forwarder. Found
# by their command lines, which have this cluster's path, so that nothing is lost
# with a PID file.
clear_away() {
  local pid args
  if pid=$(forwarder_pid); then kill -KILL "$pid" || true; fi
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    mapfile -d '' -t args 2>/dev/null <"/proc/$pid/cmdline" || continue
    # The interpreter and the script, not unshare waiting for it.
    if [[ ${args[0]:-} == *bash && ${args[1]:-} == "$ROOT/dev/machine.sh" && ${args[3]:-} == "$RUN"/* || ${args[0]:-} == "$FORWARDER_NAME" ]]; then
      kill -KILL "$pid" 2>/dev/null || true
    fi
  done
  wait_until 20 "the end of the machines' cgroups" cgroups_remove || warn "some cgroups named $CLUSTER_ID are left in /sys/fs/cgroup"
  # A process that is being killed may write its last file meanwhile.
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
    # Freezing should stop what the container has forked as well.
    pids=$(ctr_node "${node#node}" tasks ps "$id" | awk 'NR > 1 { print $1 }')
  fi
  # shellcheck disable=SC2086  # a list of numbers
  enter "$node" kill "-$signal" $pids
  say "sent SIG$signal to $namespace/$pod $container (process $pid in $node)"
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
  in-node)
    node_number "${2:-}" && node=node$2 && shift 2
    [[ ${1:-} != -- ]] || shift
    enter "$node" "${@:?which command?}"
    ;;
  on-node)
    node_number "${2:-}" && node=node$2 && shift 2
    [[ ${1:-} != -- ]] || shift
    printf 'nameserver %s\nsearch svc.cluster.local cluster.local\noptions ndots:5\n' "$DNS_IP" >"$RUN/$node/resolv.conf"
    # shellcheck disable=SC2016  # for the inner shell to expand
    enter "$node" unshare --mount sh -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' \
      "$RUN/$node/resolv.conf" "${@:?which command?}"
    ;;
  in-cp)
    shift
    [[ ${1:-} != -- ]] || shift
    enter cp "${@:?which command?}"
    ;;
  -h | --help | help) usage ;;
  *) usage >&2 && exit 2 ;;
esac
