# shellcheck shell=bash
# Functions that run one API server with an etcd on loopback ports, without nodes and controllers. Source lib.sh before this file.
# All files are in $WORK. At its exit the script kills the servers and deletes $WORK.

WORK=$(mktemp -d)
PIDS=()

stop() {
  local pid
  # SIGKILL loses nothing, because the data is deleted as well. After SIGTERM an API server would wait for its etcd.
  for pid in "${PIDS[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
  PIDS=()
}
trap 'stop; rm -rf "$WORK"' EXIT

free_port() {
  local port
  for port in $(shuf -i 20000-29999 -n 50); do
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
  die "no free port"
}

k() { "$BIN/kubectl" --kubeconfig "$WORK/kubeconfig" "$@"; }
answers() { k get --raw /readyz --request-timeout=2s; }

# start PROGRAM FLAG...: start an etcd and an API server.
start() {
  local program=$1 client peer port
  shift
  client=$(free_port) peer=$(free_port) port=$(free_port)
  rm -rf "$WORK/etcd" "$WORK/server"
  mkdir -p "$WORK/server"
  nice etcd --data-dir "$WORK/etcd" --unsafe-no-fsync --log-level error \
    --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" >"$WORK/etcd.log" 2>&1 &
  PIDS+=($!)
  openssl genrsa -out "$WORK/server/accounts.key" 2048 2>/dev/null
  printf 'administrator,administrator,1,system:masters\n' >"$WORK/server/tokens"
  # No controller creates ServiceAccounts here, so the admission plugin that requires one for each pod is off.
  nice "$program" --etcd-servers="http://127.0.0.1:$client" --secure-port="$port" --bind-address=127.0.0.1 \
    --cert-dir="$WORK/server" --token-auth-file="$WORK/server/tokens" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$WORK/server/accounts.key" \
    --service-account-signing-key-file="$WORK/server/accounts.key" --service-cluster-ip-range=10.96.0.0/16 \
    --disable-admission-plugins=ServiceAccount "$@" >"$WORK/apiserver.log" 2>&1 &
  PIDS+=($!)
  cat >"$WORK/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: alone, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: administrator, user: {token: administrator}}]
contexts: [{name: alone, context: {cluster: alone, user: administrator}}]
current-context: alone
END
  wait_until 300 "the API server" answers || { tail -n 20 "$WORK/apiserver.log" >&2 && die "the API server does not come up"; }
}
