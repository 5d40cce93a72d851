#!/usr/bin/env bash
# Applies all objects of users to real API servers: of the oldest Kubernetes that the chart supports, of the local cluster's version, and of
# the newest. The objects are the CRDs with their CEL rules, the chart with several sets of values, the samples, and the objects that the
# operator creates for a quorum. Each server validates them strictly. It runs on loopback ports with an etcd, without nodes and controllers.
#
# usage: dev/api-servers.sh [oldest] [local] [newest]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=alone.sh
. "$ROOT/dev/alone.sh"

CHART=$ROOT/charts/redlock-operator
SYSTEM=redlock-system
OPERATOR=system:serviceaccount:$SYSTEM:redlock-operator
# taken WHAT ARGUMENT...: check that the server accepts the objects on the standard input, without unknown fields and without warnings.
taken() {
  local what=$1
  shift
  local how=(apply --server-side --force-conflicts)
  # The operator creates and replaces these objects. It has no permission to apply them.
  if [[ ${1:-} == --as ]]; then how=(create); fi
  if ! k "${how[@]}" --dry-run=server --validate=strict "$@" -f - >"$WORK/out" 2>&1; then
    cat "$WORK/out" >&2
    die "$what: refused"
  fi
  if grep -i '^warning' "$WORK/out" >&2; then die "$what: taken with warnings"; fi
  echo >>"$WORK/checks"
}

# refused TEXT ARGUMENT...: check that the server refuses the objects on the standard input with a message that has this text.
refused() {
  local text=$1
  shift
  if k create --dry-run=server "$@" -f - >"$WORK/out" 2>&1; then
    die "taken, and it should be refused with: $text"
  fi
  grep -qF -- "$text" "$WORK/out" || { cat "$WORK/out" >&2 && die "refused, but not with: $text"; }
  if grep -F -e 'evaluating rule' -e 'should match' "$WORK/out" >&2; then die "refused with an error of the rules"; fi
  echo >>"$WORK/checks"
}

quorum() { printf '{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum", "metadata": {"name": "q", "namespace": "shop"}, "spec": %s}' "$1"; }
job() { printf '{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default", "annotations": {"redlock-operator.io/lock": "k"}}, "spec": %s}' "$1"; }
cron_job() { printf '{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "default"}, "spec": {"schedule": "0 * * * *", "jobTemplate": %s}}' "$1"; }
lock() { printf '{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "l", "namespace": "shop"}, "spec": %s}' "$1"; }

# many N PREFIX: print a JSON object with N fields.
many() { seq "$1" | sed "s/.*/\"$2&\": \"x\"/" | paste -sd, | sed 's/.*/{&}/'; }
finalizers() { seq "$1" | sed 's/.*/"example.com\/f&"/' | paste -sd,; }

kinds() {
  k apply --server-side --validate=strict -f "$ROOT/crds" >/dev/null
  wait_until 60 "the kinds" k wait --for=condition=Established --timeout=20s \
    crd/redisquorums.redlock-operator.io crd/distributedlocks.redlock-operator.io || die "the kinds are not established"
  local sample
  for sample in "$ROOT"/manifests/samples/*.yaml; do taken "sample ${sample##*/}" --namespace shop <"$sample"; done
  quorum '{"pod": {"labels": {"team": "a"}, "annotations": {"sidecar.istio.io/inject": "false"}, "securityContext": {},
    "runtimeClassName": "sandbox", "extraContainers": [{"name": "agent", "image": "agent:1",
    "env": {"A": "b"}, "ports": {"metrics": 9121}, "resources": {"limits": {"memory": "16Mi"}}}]}}' | taken "settings of pods"
  quorum '{"members": 2}' | refused "set 1, 3, 5, 7 or 9 in total"
  quorum '{"maxTTL": "2h"}' | refused "set a maxTTL from 1s to 1h"
  quorum '{"tls": {"mode": "Secret"}}' | refused "set mode: Secret together with secretRef"
  quorum '{"expose": {"type": "NodePort"}, "tls": {"mode": "Disabled"}}' | refused "need TLS"
  quorum '{"clients": [{"name": "a", "namespace": "shop", "keyPrefix": "other/"}]}' | refused "keyPrefix begins with its namespace"
  quorum '{"pod": {"labels": {"redlock-operator.io/member": "x"}}}' | refused "give yours another prefix"
  quorum '{"pod": {"annotations": {"redlock-operator.io/x": "x"}}}' | refused "give yours another prefix"
  quorum '{"pod": {"extraContainers": [{"name": "redis", "image": "x"}]}}' | refused "give yours another name"
  quorum '{"pod": {"securityContext": {"runAsUser": 0}}}' | refused "greater than or equal to 1"
  quorum '{"installation": "A_b"}' | refused "write lower-case letters"
  quorum '{"memebers": 3}' | refused 'unknown field "spec.memebers"'
  lock '{"key": "k"}' | refused "claim"
  lock '{"claim": {"identity": "a"}}' | refused "key"
  lock '{"key": "k", "claim": {"identity": "a", "podName": "b"}}' | refused "set exactly one of identity (free text), podName"
  lock '{"key": "k", "ttl": "10s", "renewInterval": "6s", "claim": {"identity": "a"}}' | refused "renewInterval"
  lock '{"key": "k", "ttl": "30s", "renewInterval": "2900ms", "claim": {"identity": "a"}}' | refused "at least a tenth of ttl"
  lock '{"key": "k", "ttl": "30s", "renewInterval": "3s", "claim": {"identity": "a"}}' | taken "a renewInterval of a tenth of ttl"
  lock "{\"election\": {\"selector\": {\"matchLabels\": $(many 17 a)}}}" | refused "at most 16"
  lock '{"election": {"selector": {}}}' | refused "an empty selector makes every pod a candidate"
  lock '{"key": "a b", "claim": {"identity": "a"}}' | refused "write the key in letters, digits"
  lock '{"key": "k", "ttl": "10", "claim": {"identity": "a"}}' | refused "write whole numbers with the units h, m, s or ms"
  lock '{"key": "k", "ttl": "1d", "minHold": "x", "maxHold": "1y", "claim": {"identity": "a"}}' | refused "write whole numbers"
  lock '{"key": "k", "ttl": "10s", "renewInterval": "-1s", "claim": {"identity": "a", "heartbeat": "1.5s"}}' | refused "write whole numbers"
  lock '{"key": "k", "claim": {"identity": "a"}, "retry": {"delay": "1"}}' | refused "write whole numbers"
  lock '{"election": {"selector": {"matchLabels": {"a": "b"}}}, "liveness": {"httpGet": {"path": "x", "port": 80}}}' |
    refused "begin the path with a slash"
  quorum '{"maxTTL": "1", "nodeTimeout": "x", "clockDrift": {"floor": "y", "ppm": 1}}' | refused "write whole numbers"
  quorum '{"clients": [{"name": "A", "namespace": "shop", "keyPrefix": "shop/"}]}' | refused "write lower-case letters"
  quorum '{"clients": [{"name": "a", "namespace": "shop", "keyPrefix": "shop"}]}' | refused "ends with a slash"
  quorum '{"members": 2, "external": [{"name": "a", "address": "host"}]}' | refused "write host:port"
}

# Check the manifests in docs/ that name this script in the line before the code block.
pages() {
  local page manifest
  mkdir "$WORK/pages"
  for page in "$ROOT"/docs/*.md; do
    awk -v file="$WORK/pages/$(basename "$page" .md)" '/^ *```/ { inside = before ~ /tested by: dev\/api-servers.sh/; indent = index($0, "`"); count++; before = ""; next }
      inside { print substr($0, indent) > (file "-" count ".yaml") } { before = $0 }' "$page"
  done
  for manifest in "$WORK/pages"/*.yaml; do taken "${manifest##*/} of the pages" <"$manifest"; done
  (($(find "$WORK/pages" -name '*.yaml' | wc -l) == $(cat "$ROOT"/docs/*.md | grep -c 'tested by: dev/api-servers.sh'))) || die "a manifest of the pages was not found"
  rm -r "$WORK/pages"
}

chart() {
  local values
  for values in default everything nothing openshift mirror elsewhere; do
    local arguments=()
    if [[ $values != default ]]; then arguments=(--values "$ROOT/tests/chart/$values.yaml"); fi
    "$BIN/helm" template redlock-operator "$CHART" --namespace $SYSTEM --kube-version "$VERSION" --set "quorumNamespaces={*}" "${arguments[@]}" >"$WORK/$values.yaml"
    taken "the chart with values \"$values\"" <"$WORK/$values.yaml"
  done
  taken manifests/install.yaml <"$ROOT/manifests/install.yaml"
  # kustomize gives a namespace to objects that have none.
  printf 'resources: [manifests]\nnamespace: shop\nreplacements: [{path: kustomize-namespace.yaml}]\n' >"$WORK/kustomization.yaml"
  cp -R "$ROOT/manifests" "$ROOT/manifests/kustomize-namespace.yaml" "$WORK/"
  k kustomize "$WORK" >"$WORK/moved.yaml"
  taken "the manifest in another namespace" <"$WORK/moved.yaml"
}

# The policies identify the operator by its service account. tests/chart/members.yaml has the objects that it creates for a quorum.
policies() {
  k apply --server-side --validate=strict -f "$WORK/default.yaml" >/dev/null
  local members=$ROOT/tests/chart/members.yaml as=(--as "$OPERATOR")
  wait_until 60 "the policies" policies_work || die "the policies are not in force"
  # wrong_members OLD NEW: print the objects that the operator creates for a quorum, with the first OLD replaced by NEW.
  wrong_members() {
    grep -q "$1" "$members" || die "$members has no $1"
    sed "0,/$1/s//$2/" "$members"
  }
  quorum '{"pod": {"priorityClassName": "members"}}' | sed 's/"name": "q"/"name": "full"/' | k create -f - >/dev/null
  quorum '{"members": 1}' | sed 's/"name": "q"/"name": "plain"/' | k create -f - >/dev/null
  not_allowed "installation cannot be changed" k patch rq plain --namespace shop --type merge --patch '{"spec": {"installation": "other"}}'
  taken "what the operator makes of a quorum" "${as[@]}" <"$members"
  wrong_members 'automountServiceAccountToken: false' 'serviceAccountName: other' |
    refused "members have no service account but default" "${as[@]}"
  wrong_members 'priorityClassName: members' 'priorityClassName: system-node-critical' |
    refused "priority class of the system" "${as[@]}"
  wrong_members '    redlock-operator.io\/quorum: full' '    argocd.argoproj.io\/secret-type: cluster\n    redlock-operator.io\/quorum: full' |
    refused "labels or annotations of other programs" "${as[@]}"
  wrong_members 'automountServiceAccountToken: false' 'automountServiceAccountToken: true' |
    refused "members get no service account token" "${as[@]}"
  wrong_members 'allowPrivilegeEscalation: false' 'allowPrivilegeEscalation: true' | refused "Pod Security restricted" "${as[@]}"
  wrong_members 'imagePullPolicy: IfNotPresent' 'env: [{name: A, value: b}]' |
    refused "containers of members are those of a quorum" "${as[@]}"
  wrong_members 'value: info' 'valueFrom: {secretKeyRef: {name: other, key: password}}' |
    refused "containers of members are those of a quorum" "${as[@]}"
  wrong_members 'kind: RedisQuorum' 'kind: ConfigMap' | refused "only objects of a RedisQuorum, with its name" "${as[@]}"
  quorum '{}' | refused "the operator can create only the default quorum" "${as[@]}"
}
# Check the policy on requests of users. The application has the role `holder`.
requests() {
  local app=system:serviceaccount:shop:app other=system:serviceaccount:shop:other me
  k apply -f - >/dev/null <<END
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "holders", "namespace": "shop"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "redlock-operator-holder"},
 "subjects": [{"kind": "ServiceAccount", "name": "app", "namespace": "shop"}, {"kind": "ServiceAccount", "name": "other", "namespace": "shop"}]}
END
  local kind
  for kind in labels annotations; do
    lock '{"key": "k", "claim": {"identity": "a"}}' | sed "s/\"namespace\"/\"$kind\": $(many 65 a), &/" | refused "set at most 64 $kind"
    lock '{"key": "k", "claim": {"identity": "a"}}' | sed "s/\"namespace\"/\"$kind\": $(many 64 a), &/" | taken "64 $kind"
  done
  lock '{"key": "k", "claim": {"identity": "a"}}' | sed "s|\"namespace\"|\"finalizers\": [$(finalizers 21)], &|" | refused "set at most 20 finalizers"
  owned() { sed "s|\"namespace\"|\"ownerReferences\": [$(seq "$1" | sed "s/.*/{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"name\": \"$2\", \"uid\": \"&\"}/" | paste -sd,)], &|"; }
  lock '{"key": "k", "claim": {"identity": "a"}}' | owned 21 a | refused "set at most 20 ownerReferences"
  lock '{"key": "k", "claim": {"identity": "a"}}' | owned 1 "$(printf 'a%.0s' {1..254})" | refused "set at most 20 ownerReferences"
  lock '{"key": "k", "claim": {"identity": "a"}}' | owned 20 a | taken "20 owners"
  lock '{"election": {"selector": {"matchLabels": {"a": "b"}}}}' | refused "change no specification" --as "$app"
  lock '{"key": "k", "claim": {"jobName": "wipe"}}' | refused "change no specification" --as "$app"
  lock '{"key": "k", "claim": {"identity": "a"}}' | sed "s/\"namespace\"/\"annotations\": {\"redlock-operator.io\/created-by\": \"$app\"}, &/" |
    k create --as "$app" -f - >/dev/null
  lock '{"key": "k", "claim": {"identity": "a"}}' | sed "s/\"namespace\"/\"annotations\": {\"redlock-operator.io\/created-by\": \"$other\"}, &/" |
    refused "names the user who creates the claim" --as "$app"
  change() { k patch dlock l --namespace shop --type merge --as "$1" --patch "$2"; }
  annotate() { change "$1" "{\"metadata\": {\"annotations\": {\"redlock-operator.io/$2\": \"$3\"}}}"; }
  not_allowed "change no specification" change "$app" '{"spec": {"suspend": true}}'
  not_allowed "the holder sets release" annotate "$other" release 7
  not_allowed "your own claims" annotate "$other" step-down x
  not_allowed "your own claims" annotate "$other" created-by "$other"
  not_allowed "your own claims" k delete dlock l --namespace shop --as "$other"
  not_allowed "the verb break" annotate "$app" break "$app: x"
  me=$(k auth whoami -o 'jsonpath={.status.userInfo.username}')
  not_allowed "name the user who breaks the lock. Set the annotation to $me" k annotate dlock l --namespace shop "redlock-operator.io/break=x"
  k annotate dlock l --namespace shop "redlock-operator.io/break=$me: x" >/dev/null
  annotate "$app" release 7 >/dev/null
  k patch dlock l --namespace shop --type merge --patch '{"spec": {"suspend": true}}' >/dev/null
  # The uninstallation of another installation removes finalizers. kubectl also reads the object.
  k create clusterrolebinding reads --clusterrole=redlock-operator-view --serviceaccount=web:locks-uninstall >/dev/null
  "$BIN/helm" template locks "$CHART" --namespace web --kube-version "$VERSION" --set fullnameOverride=locks \
    --show-only templates/uninstall-check.yaml | k apply -f - >/dev/null
  k patch dlock l --namespace shop --type merge --patch '{"metadata": {"finalizers": ["redlock-operator.io/release"]}}' >/dev/null
  k patch dlock l --namespace shop --type merge --as system:serviceaccount:web:locks-uninstall --patch '{"metadata": {"finalizers": null}}' >/dev/null
  k delete dlock l --namespace shop --as "$app" >/dev/null
}
# Check the policy on Jobs that request a lock.
locked_jobs() {
  local pod='{"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}%s}' locked='"metadata": {"annotations": {"redlock-operator.io/lock": "k"}}'
  local free suspended
  # shellcheck disable=SC2059
  free=$(printf "$pod" '') suspended=$(printf "$pod" ', "suspend": true')
  # A CronJob that is older than the policy, and that the garbage collector deletes in the foreground.
  cron_job "{$locked, \"spec\": $free}" | sed 's/"name": "c"/"name": "old"/' | k create -f - >/dev/null
  k delete cronjob old --namespace default --cascade=foreground --wait=false >/dev/null
  "$BIN/helm" template redlock-operator "$CHART" --namespace $SYSTEM --kube-version "$VERSION" --set jobs.enabled=true \
    --show-only templates/admission-jobs.yaml | k apply --server-side --validate=strict -f - >/dev/null
  runs_without_lock() { ! job "$free" | k create --dry-run=server -f - >/dev/null 2>&1; }
  wait_until 60 "the policy on Jobs" runs_without_lock || die "the policy on Jobs is not in force"
  job "$suspended" | taken "a suspended Job with a lock"
  job "$free" | refused "set spec.suspend: true"
  job "$free" | sed 's/redlock-operator.io.lock/example.com\/lock/' | taken "a Job without a lock"
  cron_job "{$locked, \"spec\": $suspended}" | taken "a CronJob with a lock"
  cron_job "{$locked, \"spec\": $free}" | refused "set spec.jobTemplate.spec.suspend: true"
  cron_job "{\"spec\": $free}" | taken "a CronJob without a lock"
  k patch cronjob old --namespace default --type merge --patch '{"metadata": {"finalizers": null}}' >/dev/null ||
    die "the policy on Jobs keeps a deleted CronJob"
  echo >>"$WORK/checks"
}
# pod UID: write a kubeconfig for the application's service account with a token that names this pod.
pod() {
  sed -e "s/user: administrator}}/user: pod}}/" -e "s|^users: .*|users: [{name: pod, user: {token: administrator, as: 'system:serviceaccount:shop:app', \
as-user-extra: {authentication.kubernetes.io/pod-uid: [$1]}}}]|" "$WORK/kubeconfig" >"$WORK/kubeconfig-$1"
}
# lease NAME NAMESPACE HOLDER SECONDS: print a Lease renewed now, with this duration. A HOLDER of `null` means no holder.
lease() {
  printf '{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "%s", "namespace": "%s"}, "spec": {"holderIdentity": %s,
    "leaseDurationSeconds": %s, "renewTime": "%s"}}' "$1" "$2" "$3" "$4" "$(date -u +%FT%T.%6NZ)"
}
# held UID SECONDS: set the holder of the lock `gate` to this pod in its status, and the end of the validity.
held() {
  local until
  until=$(date -u -d "+$2 seconds" +%FT%T.%3NZ)
  k patch dlock gate --namespace shop --subresource status --type merge --patch "{\"status\": {\"transitions\": 1, \"validUntil\": \"$until\",
    \"fencingToken\": 7, \"holder\": {\"identity\": \"a-0\", \"podName\": \"a-0\", \"podUID\": \"$1\"}}}" >/dev/null
}
# Check the gate for the Leases of elections, and the policy on fenced writes.
gate() {
  local spec
  "$BIN/helm" template redlock-operator "$CHART" --namespace $SYSTEM --kube-version "$VERSION" --set leaseGate.enabled=true \
    --set-json 'fencedWrites.resources=[{"apiGroups": [""], "resources": ["configmaps", "namespaces"]}]' \
    --show-only templates/admission-leases.yaml --show-only templates/admission-fenced.yaml --show-only templates/rbac.yaml | k apply --server-side --validate=strict -f - >/dev/null
  pod u-1 && pod u-2
  k create clusterrole app --verb=get,create,update,patch,delete --resource=leases.coordination.k8s.io,configmaps >/dev/null
  k create clusterrolebinding app --clusterrole=app --serviceaccount=shop:app >/dev/null
  elects() { echo "{\"election\": {\"selector\": {\"matchLabels\": {\"a\": \"b\"}}, \"lease\": {\"name\": \"$1\"}}}"; }
  spec=$(elects controller.example.com)
  lock "$(elects A)" | refused "write the name of the Lease in lower-case letters"
  lock "${spec%\}}, \"slots\": 2}" | refused "a Lease names one holder"
  lock "${spec%\}}, \"validity\": \"Transitions\"}" | refused "needs validity: Published"
  lock "${spec%\}}, \"ttl\": \"30s\", \"renewInterval\": \"11s\"}" | refused "at most a third of ttl"
  lock "${spec%\}}, \"ttl\": \"30s\"}" | sed 's/"name": "l"/"name": "gate", "labels": {"redlock-operator.io\/lease": "true"}/' | k create -f - >/dev/null
  not_allowed "election.lease cannot be changed" k patch dlock gate --namespace shop --type merge --patch '{"spec": {"election": {"lease": {"name": "b"}}}}'
  kept() { ! k label dlock gate --namespace shop redlock-operator.io/lease- --dry-run=server >/dev/null 2>&1; }
  wait_until 60 "the label's policy" kept || die "the label's policy is not in force"
  not_allowed "leave it on the lock" k label dlock gate --namespace shop redlock-operator.io/lease-
  not_allowed "leave it on the lock" k label dlock gate --namespace shop --overwrite redlock-operator.io/lease=no
  leases
  fenced
  types
}
# as_pod UID: send the next requests as this pod, or without an argument as the administrator.
as_pod() { POD=(--kubeconfig "$WORK/kubeconfig${1:+-$1}"); }
leases() {
  local name=controller.example.com
  # write [HOLDER [SECONDS]]: renew the Lease as this pod or administrator. HOLDER is a string in JSON, or null. The default is 15 seconds.
  write() {
    local holder=${1:-null} seconds=${2:-15}
    printf '{"spec": {"holderIdentity": %s, "leaseDurationSeconds": %s, "renewTime": "%s"}}' "$holder" "$seconds" "$(date -u +%FT%T.%6NZ)" >"$WORK/write"
    k patch lease "$name" --namespace shop "${POD[@]}" --type merge --patch-file "$WORK/write"
  }
  # opened TOKEN|none: set or remove the annotation with which the operator opens the Lease for a hold.
  opened() {
    local annotation=redlock-operator.io/lease-token
    if [[ $1 == none ]]; then annotation+=-; else annotation+="=$1"; fi
    k annotate lease "$name" --namespace shop --overwrite "$annotation" >/dev/null
  }
  gated() { ! lease "$name" shop null 15 | k create --dry-run=server -f - >/dev/null 2>&1; }
  holds() { write '"a"' >/dev/null 2>&1; }
  not_yet() { ! holds; }
  wait_until 60 "the gate" gated || die "the gate is not in force"
  lease other shop '"a"' 15 | taken "a Lease of no lock"
  lease $name default '"a"' 15 | taken "a Lease of that name in another namespace"
  lease $name shop '"a"' 15 | refused "DistributedLock shop/gate: the operator creates it"
  lease $name shop null 15 | refused "the operator creates it"
  lease $name shop null 15 | k create --as "$OPERATOR" -f - >/dev/null
  # The gate checks only Leases with the label.
  write '"old"' >/dev/null
  k label lease $name --namespace shop redlock-operator.io/lease=true >/dev/null
  not_allowed "leave the label redlock-operator.io/lease on it" k label lease $name --namespace shop redlock-operator.io/lease-
  not_allowed "which no pod holds now" write '"a"'
  as_pod u-1
  not_allowed "DistributedLock shop/gate, which no pod holds now" write '"a"'
  write null >/dev/null
  write '""' >/dev/null
  held u-1 60
  # Only a Lease that is open for the current hold, whose token is 7, admits a new holder name.
  opened 6
  unopened() { [[ $(write '"a"' 2>&1) == *"has not opened it for the present hold of pod a-0"* ]]; }
  wait_until 20 "the holder" unopened || die "the token is not compared"
  opened none
  not_allowed "has not opened it for the present hold of pod a-0" write '"a"'
  opened 7
  write '"a"' >/dev/null
  opened 6
  not_allowed "has not opened it for the present hold of pod a-0" write '"a"'
  opened none
  write '"a"' >/dev/null
  opened 7
  not_allowed "names the user who creates the claim" \
    k annotate dlock gate --namespace shop "${POD[@]}" redlock-operator.io/created-by=system:serviceaccount:shop:app
  not_allowed "at most half of the lock's ttl 30s" write '"a"' 61
  # The gate refuses a Lease that would end later than one second before validUntil.
  held u-1 16
  wait_until 20 "the shorter validity" not_yet || die "a Lease is admitted that ends after the validity"
  not_allowed "The operator has not renewed the hold recently" write '"a"'
  write '"a"' 10 >/dev/null
  held u-1 60
  wait_until 20 "the holder" holds || die "the holder is not admitted"
  # A second lock with this Lease does not stop the leader of the first one, because the operator refused the second lock.
  lock "${spec%\}}, \"ttl\": \"30s\"}" | sed 's/"name": "l"/"name": "second", "labels": {"redlock-operator.io\/lease": "true"}/' | k create -f - >/dev/null
  k patch dlock second --namespace shop --subresource status --type merge --patch '{"status": {"transitions": 0, "conditions": [{"type": "Accepted",
    "status": "False", "reason": "LeaseNotServed", "message": "gate is older", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}' >/dev/null
  wait_until 20 "the refused lock" holds || die "a refused lock keeps the leader of another one from renewing"
  k delete dlock second --namespace shop >/dev/null
  not_allowed "would be valid for longer" k patch lease $name --namespace shop "${POD[@]}" --type merge --patch '{"spec": {"renewTime": null}}'
  as_pod u-2
  not_allowed "pod a-0 holds until" write '"b"'
  as_pod
  not_allowed "with its own service account token" k patch lease $name --namespace shop --type merge --patch '{"spec": {"leaseTransitions": 7}}'
  k label lease $name --namespace shop team=a >/dev/null
  k patch lease $name --namespace shop --type merge --patch '{"spec": {"holderIdentity": null}}' >/dev/null
  if [[ $VERSION != v1.30.* ]]; then
    not_allowed "remove spec.strategy" k patch lease $name --namespace shop --type merge --patch '{"spec": {"strategy": "OldestEmulationVersion"}}'
  fi
  # In a namespace without the gate, locks have no effect on Leases, and the operator cannot write Leases.
  lock "$(printf '{"election": {"selector": {"matchLabels": {"a": "b"}}, "lease": {"name": "%s"}}}' $name)" |
    sed -e 's/"name": "l"/"name": "gate", "labels": {"redlock-operator.io\/lease": "true"}/' -e 's/"namespace": "shop"/"namespace": "kube-system"/' |
    k create -f - >/dev/null
  lease $name kube-system '"a"' 15 | taken "a Lease of kube-system"
  lease $name kube-system '"a"' 15 | refused "the operator can write no Leases in a namespace that leaseGate.leaveOutNamespaces names" --as "$OPERATOR"
}
# Check the types in the policies with a controller of Kubernetes. A rule with a wrong field name or type would never be true.
types() {
  "$BIN/kube-controller-manager" --kubeconfig "$WORK/kubeconfig" --controllers=validatingadmissionpolicy-status-controller --leader-elect=false \
    --secure-port=0 >"$WORK/controller.log" 2>&1 &
  PIDS+=($!)
  checked() { ! k get validatingadmissionpolicies -o jsonpath='{range .items[*]}{.metadata.generation}={.status.observedGeneration}{"\n"}{end}' | grep -qvE '^([0-9]+)=\1$'; }
  wait_until 60 "the types" checked || { tail -n 20 "$WORK/controller.log" >&2 && die "the types of the policies are not checked"; }
  k get validatingadmissionpolicies -o jsonpath='{range .items[*]}{.metadata.name}: {.status.typeChecking.expressionWarnings}{"\n"}{end}' >"$WORK/out"
  if grep -F warning "$WORK/out" >&2; then die "a policy reads what is not there"; fi
  echo >>"$WORK/checks"
}
config() { printf '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "%s", "namespace": "%s", "annotations": {"redlock-operator.io/fenced-by": "%s"}}}' "$@"; }
fenced() {
  local change='{"data": {"a": "b"}}' free='{"metadata": {"annotations": {"redlock-operator.io/fenced-by": null}}}'
  patch() { k patch configmap a --namespace shop "${POD[@]}" --type merge --patch "$1"; }
  as_pod u-2
  fences() { ! config a shop gate | k create --dry-run=server "${POD[@]}" -f - >/dev/null 2>&1; }
  wait_until 60 "the policy on fenced writes" fences || die "the policy on fenced writes is not in force"
  config a shop gate | refused "DistributedLock shop/gate, which pod a-0 holds" "${POD[@]}"
  as_pod
  k create namespace gone >/dev/null
  config a gone gate | k create -f - >/dev/null
  lock '{"election": {"selector": {"matchLabels": {"a": "b"}}}}' | sed -e 's/"name": "l"/"name": "gate"/' -e 's/"shop"/"gone"/' | k create -f - >/dev/null
  as_pod u-2
  config a default gate | taken "a ConfigMap that names a lock of another namespace" "${POD[@]}"
  as_pod u-1
  config a shop gate | k create "${POD[@]}" -f - >/dev/null
  patch "$change" >/dev/null
  as_pod u-2
  not_allowed "which pod a-0 holds" patch "$change"
  not_allowed "which pod a-0 holds" patch "$free"
  not_allowed "which pod a-0 holds" k delete configmap a --namespace shop "${POD[@]}"
  held u-2 60
  moved() { patch "$change" --dry-run=server; }
  wait_until 20 "the next holder" moved || die "the next holder is not admitted"
  as_pod u-1
  not_allowed "which pod a-0 holds" patch '{"data": {"a": "late"}}'
  as_pod
  not_allowed "which pod a-0 holds" patch '{"data": {"a": "x"}}'
  not_allowed "which no pod holds now" k delete configmap a --namespace gone
  k delete namespace gone --wait=false >/dev/null
  goes() { k delete configmap a --namespace gone; }
  wait_until 20 "the end of the namespace" goes || die "a fenced object outlives its namespace"
  patch "$free" >/dev/null
  as_pod u-1
  patch '{"data": {"a": "y"}}' >/dev/null
  k delete configmap a --namespace shop "${POD[@]}" >/dev/null
}
# not_allowed TEXT COMMAND...: check that the server refuses the command with a message that has this text.
not_allowed() {
  local text=$1
  shift
  if "$@" >"$WORK/out" 2>&1; then die "allowed, and it should be refused with: $text"; fi
  grep -qF -- "$text" "$WORK/out" || { cat "$WORK/out" >&2 && die "refused, but not with: $text"; }
  echo >>"$WORK/checks"
}
policies_work() {
  quorum '{}' | k create --dry-run=server --as "$OPERATOR" -f - >"$WORK/out" 2>&1 && return 1
  grep -q "can create only the default quorum" "$WORK/out"
}

one() {
  local program=$1
  [[ -x $program ]] || die "$program is missing: dev/setup.sh servers builds it"
  local flags=(--feature-gates=CoordinatedLeaderElection=true --runtime-config=coordination.k8s.io/v1beta1=true)
  if [[ $program == *-oldest ]]; then flags=(); fi
  start "$program" "${flags[@]}"
  VERSION=$(k version -o json 2>/dev/null | sed -n '/serverVersion/,$s/.*"gitVersion": "\(.*\)".*/\1/p')
  step "The API server of Kubernetes $VERSION"
  local namespace
  : >"$WORK/checks"
  for namespace in $SYSTEM shop redis web 0815; do k create namespace "$namespace" >/dev/null; done
  for namespace in locks shared; do k create namespace "$namespace" >/dev/null; done
  kinds
  pages
  for namespace in $SYSTEM shop redis web 0815; do
    k label namespace "$namespace" pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
  done
  k create -f - >/dev/null <<<'{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "runc"}'
  chart
  policies
  requests
  locked_jobs
  gate
  stop
  say "    $(wc -l <"$WORK/checks") checks"
}

if (($# == 0)); then set -- oldest local newest; fi
for which in "$@"; do
  case $which in
    oldest | newest) one "$BIN/kube-apiserver-$which" ;;
    local) one "$BIN/kube-apiserver" ;;
    *) die "usage: dev/api-servers.sh [oldest] [local] [newest]" ;;
  esac
done
