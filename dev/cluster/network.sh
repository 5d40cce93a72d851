# shellcheck shell=bash
# Creates the network of the cluster: a bridge, a route for the pods of each node, and a loopback port for the API server.
# Sourced by cluster.sh.

control_plane_network() {
  enter cp bash -euc "
    ip link set lo up
    ip link add br0 type bridge
    ip addr add $CP_IP/24 dev br0
    ip link set br0 up
    echo 1 >/proc/sys/net/ipv4/ip_forward"
}

# Each pod has its own /32 route through the node (the CNI plugin ptp, not bridge).
# All packets pass the node's IP layer. Therefore Services also work between two
# pods of one node, and nft rules can separate any two pods.
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

# The host reaches only the API server, through a loopback port. One socat listens on
# this port, and another one runs inside the control plane. A socket file connects
# them, because it does not depend on network namespaces.
FORWARDER_NAME="socat for ${LOCAL%/.local}" # ps shows this name, and clear_away finds the process by it
port_forward() {
  local port
  daemon cp socat "UNIX-LISTEN:api.sock,fork,unlink-early,backlog=128,mode=0600" TCP:127.0.0.1:6443,nodelay
  if forwarder_pid >/dev/null; then return; fi
  for port in ${API_PORT:-$(seq 18443 18499)}; do
    if listening "$port"; then continue; fi
    # shellcheck disable=SC2016
    (
      cd "$RUN" || exit
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
