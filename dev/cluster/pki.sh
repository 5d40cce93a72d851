# shellcheck shell=bash
# Creates the certificates and kubeconfigs of the local cluster once, in .local/pki.
# They stay after `down`, so a kubeconfig is also valid after the next `up`.

API_SERVER_SANS=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
API_SERVER_SANS+=,DNS:kubernetes.default.svc.cluster.local,DNS:localhost
API_SERVER_SANS+=,IP:127.0.0.1,IP:$CP_IP,IP:$KUBERNETES_SERVICE_IP

# certificate NAME SUBJECT [SANS]: create a key, and a certificate signed by the CA.
certificate() {
  local name=$1 subject=$2 sans=${3:-}
  {
    printf '[req]\ndistinguished_name = dn\n[dn]\n[leaf]\n'
    printf 'basicConstraints = critical, CA:false\nkeyUsage = critical, digitalSignature\n'
    printf 'extendedKeyUsage = serverAuth, clientAuth\n'
    printf 'subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n'
    [[ -z $sans ]] || printf 'subjectAltName = %s\n' "$sans"
  } >"$PKI/$name.cnf"
  openssl req -x509 -config "$PKI/$name.cnf" -extensions leaf -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" \
    -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout "$PKI/$name.key" -out "$PKI/$name.crt" \
    -subj "$subject" -days 3650 2>/dev/null
  rm "$PKI/$name.cnf"
}

make_pki() {
  local i
  # Other addresses or names, or another number of nodes, need new certificates.
  if [[ $(cat "$PKI/made-for" 2>/dev/null) == "$NODES $API_SERVER_SANS" ]]; then return; fi
  rm -rf "$PKI"
  (umask 077 && mkdir -p "$PKI")
  printf '[req]\ndistinguished_name = dn\n[dn]\n[ca]\nbasicConstraints = critical, CA:true\nkeyUsage = critical, keyCertSign, cRLSign\nsubjectKeyIdentifier = hash\n' >"$PKI/ca.cnf"
  openssl req -x509 -config "$PKI/ca.cnf" -extensions ca -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
    -keyout "$PKI/ca.key" -out "$PKI/ca.crt" -subj "/CN=redlock-operator local cluster" -days 3650 2>/dev/null
  openssl genrsa -out "$PKI/service-accounts.key" 2048 2>/dev/null

  certificate kube-apiserver /CN=kube-apiserver "$API_SERVER_SANS"
  certificate kube-apiserver-kubelet /CN=kube-apiserver-kubelet
  certificate admin /O=system:masters/CN=local-admin
  certificate kube-controller-manager /CN=system:kube-controller-manager
  certificate kube-scheduler /CN=system:kube-scheduler
  certificate kube-proxy /CN=system:kube-proxy
  for i in $(seq "$NODES"); do
    certificate "node$i" "/O=system:nodes/CN=system:node:node$i" "DNS:node$i,IP:$(node_ip "$i")"
  done
  for i in admin kube-controller-manager kube-scheduler; do
    kubeconfig "$i" https://127.0.0.1:6443 >"$PKI/$i.kubeconfig"
  done
  for i in kube-proxy $(seq -f 'node%g' "$NODES"); do
    kubeconfig "$i" "https://$CP_IP:6443" >"$PKI/$i.kubeconfig"
  done
  printf '%s\n' "$NODES $API_SERVER_SANS" >"$PKI/made-for"
}

# kubeconfig NAME SERVER: print a kubeconfig that contains this certificate and its key.
kubeconfig() {
  cat <<EOF
apiVersion: v1
kind: Config
clusters:
  - name: redlock-local
    cluster:
      server: $2
      certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")
users:
  - name: $1
    user:
      client-certificate-data: $(base64 -w0 "$PKI/$1.crt")
      client-key-data: $(base64 -w0 "$PKI/$1.key")
contexts:
  - name: redlock-local
    context: {cluster: redlock-local, user: $1}
current-context: redlock-local
EOF
}
