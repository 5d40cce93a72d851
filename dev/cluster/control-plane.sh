# shellcheck shell=bash
# Starts etcd, the API server, the controllers and the scheduler on the machine cp.
# Sourced by cluster.sh.

start_etcd() {
  # etcd does not call fsync, because this cluster's data need not survive the machine.
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
