# shellcheck shell=bash
# Starts containerd, kubelet and kube-proxy on the machines node1 to nodeN.
# Sourced by cluster.sh.

# Each node has its own cgroup in every hierarchy, because two kubelets with the same
# root would kill each other's pods.
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
      # The cluster gets more CPU time than a build on the same machine. The pods need little, but they must answer within milliseconds.
      if [[ -e $hierarchy/$group/cpu.shares ]]; then echo 16384 >"$hierarchy/$group/cpu.shares"; fi
      # cgroup v2: enable the controllers for the child groups.
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
  # restrict_oom_score_adj: if this host is a container, root can lack CAP_SYS_RESOURCE.
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
  # Faults become visible within seconds, because node Leases are short, and a crashing
  # container restarts after at most 5 s. The disk belongs to the host, so kubelet does
  # not evict pods and does not remove images.
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
# These limits belong to the host, so kube-proxy must not change them.
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

# Prepare a node with all parts that do not need the API server.
node_prepare() {
  local tar
  start_containerd "$1"
  for tar in pause coredns valkey; do node_load "$1" "$IMAGES/$tar.tar" >/dev/null; done
}

# node_load N TAR: import an image unless the node already has the same one.
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

# on_nodes FUNCTION ARGUMENT...: call the function for all nodes at the same time.
on_nodes() {
  local i pids=() failed=0
  for i in $(seq "$NODES"); do
    "$1" "$i" "${@:2}" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=1; done
  return "$failed"
}
