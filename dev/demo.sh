#!/usr/bin/env bash
# Shows the operator at work, step by step. The demo checks each step, and exits with
# an error if an expected change does not happen. `make demo` runs `make up` first. With
# CLUSTER=external it uses the cluster of KUBECONFIG. The demo takes three minutes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NS=redlock-demo SYSTEM=redlock-system
if [[ ${CLUSTER:-local} == local ]]; then
  export KUBECONFIG=$KUBECONFIG_LOCAL
  REDIS=$MEMBER_IMAGE
else
  [[ -n ${KUBECONFIG:-} ]] || die "CLUSTER=external needs KUBECONFIG"
  REDIS=${DEMO_REDIS_IMAGE:-docker.io/valkey/valkey:8.1.7}
fi
BOLD='' DIM='' GREEN='' RED='' PLAIN=''
if [[ -t 1 ]]; then BOLD=$'\e[1m' DIM=$'\e[2m' GREEN=$'\e[32m' RED=$'\e[31m' PLAIN=$'\e[0m'; fi
TMP=$(mktemp -d)
WATCH='' STEP='the beginning'
START=$SECONDS

finish() {
  local code=$?
  if [[ -n $WATCH ]]; then kill "$WATCH" 2>/dev/null || true; fi
  rm -rf "$TMP"
  if ((code)); then
    printf '\n%sThe demo failed at: %s%s\n' "$RED" "$STEP" "$PLAIN" >&2
    kubectl -n $NS get rq,dlock,pods -o wide >&2 || true
    kubectl -n $NS get events --sort-by=.lastTimestamp 2>/dev/null | tail -n 15 >&2 || true
    warn "namespace $NS is left for you to look at; the next run removes it"
  fi
}
trap finish EXIT

# --------------------------------------------------------------- narration ---

chapter() { STEP=$1 && printf '\n%s%s%s\n%s\n' "$BOLD" "$1" "$PLAIN" "${1//?/-}"; }
tell() { fold -s -w 96 <<<"$*" | sed 's/ *$//'; }
fine() { printf '%s  ok: %s%s\n' "$GREEN" "$*" "$PLAIN"; }
wrong() { die "$*"; }

# show COMMAND...: print the command, run it, print its output.
show() {
  printf '%s  $' "$DIM"
  printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_.,:/=@%+-]*\)'/\1/g"
  printf '%s\n' "$PLAIN"
  "$@" 2>&1 | sed 's/^/    /'
}

# manifest: print the standard input and apply it.
manifest() {
  cat >"$TMP/manifest.yaml"
  printf '%s  $ kubectl apply -f - <<END%s\n' "$DIM" "$PLAIN"
  sed 's/^/    /' "$TMP/manifest.yaml"
  printf '%s  END%s\n' "$DIM" "$PLAIN"
  kubectl -n $NS apply -f "$TMP/manifest.yaml" | sed 's/^/    /'
}
quietly_apply() { kubectl -n $NS apply -f - >/dev/null; }

# field RESOURCE JSONPATH: print one value, or nothing if the field does not exist.
field() { kubectl -n $NS get "$1" -o jsonpath="{$2}"; }
# has RESOURCE JSONPATH VALUE LIMIT: wait until the field has this value.
has() {
  kubectl -n $NS wait "$1" --for=jsonpath="{$2}=$3" --timeout="${4:-30s}" >/dev/null 2>"$TMP/error" ||
    wrong "$1: $2 does not become $3: $(cat "$TMP/error")"
}

# changes RESOURCE JSONPATH OLD LIMIT: wait for a value other than OLD, and store it in $VALUE.
changes() {
  local pid
  VALUE=''
  while read -r VALUE; do
    if [[ -n $VALUE && $VALUE != "$3" ]]; then break; fi
    VALUE=''
  done < <(exec timeout "${4:-20}" kubectl -n "${5:-$NS}" get "$1" --watch -o jsonpath="{$2}{'\n'}")
  pid=$!
  kill "$pid" 2>/dev/null || true
  [[ -n $VALUE ]] || wrong "$1: $2 stays $3"
}

milliseconds() { printf '%d' "$((${EPOCHREALTIME/./} / 1000))"; }

# kill_container POD CONTAINER [NAMESPACE]: send SIGKILL, to simulate a crash.
kill_container() {
  local namespace=${3:-$NS}
  if [[ ${CLUSTER:-local} == local ]]; then
    show "$ROOT/dev/cluster.sh" kill-container "$namespace" "$1" "$2" | sed "s|$ROOT/||"
  else
    tell "(The hosts of this cluster are out of reach, so the pod is deleted instead of SIGKILL to its process.)"
    show kubectl -n "$namespace" delete pod "$1" --wait=false
  fi
}

# outside MEMBER COMMAND...: run redis-cli with the client's Secret, as a lock client outside Kubernetes does.
outside() {
  local member=$1
  shift
  # shellcheck disable=SC2016  # for the shell in the pod
  kubectl -n $NS exec outside -- sh -c \
    'url=$(sed -n "${1}p" /client/urls); shift; redis-cli --no-auth-warning --cacert /client/ca.crt -u "$url" "$@" 2>&1' - $((member + 1)) "$@"
}
show_outside() {
  printf '%s  outside client, to demo-%s: %s%s\n' "$DIM" "$1" "${*:2}" "$PLAIN"
  ANSWER=$(outside "$@")
  printf '    %s\n' "$ANSWER"
}

members() {
  printf '%s  $ kubectl -n %s get rq demo   (members in its status)%s\n' "$DIM" "$NS" "$PLAIN"
  kubectl -n $NS get rq demo -o jsonpath='{range .status.members[*]}{.name}{"|"}{.state}{"|"}{.reason}{"|"}{.rejoinAt}{"\n"}{end}' |
    awk -F'|' '{ printf "    %-8s %-12s %-12s %s\n", $1, $2, $3, ($4 == "" ? "" : "can vote from " $4) }'
}

POD_SECURITY='{runAsNonRoot: true, runAsUser: 999, runAsGroup: 999, fsGroup: 999, seccompProfile: {type: RuntimeDefault}}'
CONTAINER_SECURITY='{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}'

# ------------------------------------------------------------------- stage ---

clear_stage() {
  kubectl delete namespace $NS --ignore-not-found --timeout=120s >/dev/null
}

chapter "0. The stage"
tell "A Kubernetes cluster, and the operator in it, installed by Helm. One of its replicas leads, all of them renew locks."
clear_stage
show kubectl get nodes
if command -v helm >/dev/null; then show helm list --namespace $SYSTEM; fi
show kubectl -n $SYSTEM get deployments,pods,rq
kubectl create namespace $NS >/dev/null
kubectl label namespace $NS pod-security.kubernetes.io/enforce=restricted >/dev/null

# ------------------------------------------------------------------ quorum ---

chapter "1. A quorum starts closed, and opens late"
tell "The holder of a lock has the votes of a majority of independent Redis masters. A restarted master has lost its votes," \
  "so it must not vote again before all of them have expired. The longest vote lasts maxTTL. The first start also takes this" \
  "time, because a new master can have voted before. maxTTL is 10 s here to keep the demo short. The default is 30 s. The" \
  "client 'outside' is any Redlock library without access to Kubernetes. Its Secret contains the addresses of the members," \
  "and the authority of their certificates."
manifest <<END
apiVersion: redlock-operator.io/v1alpha1
kind: RedisQuorum
metadata: {name: demo}
spec:
  members: 3
  maxTTL: 10s
  image: $REDIS
  clients: [{name: outside, namespace: $NS, keyPrefix: $NS/}]
END
quietly_apply <<END
apiVersion: v1
kind: Pod
metadata: {name: outside}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: $POD_SECURITY
  volumes: [{name: client, secret: {secretName: demo-client-outside}}]
  containers:
  - name: client
    image: $REDIS
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 3600 & wait \$!; done"]
    volumeMounts: [{name: client, mountPath: /client, readOnly: true}]
    securityContext: $CONTAINER_SECURITY
END
for i in 0 1 2; do has rq/demo ".status.members[$i].state" Fenced 60s; done
members
kubectl -n $NS wait pod/outside --for=condition=Ready --timeout=60s >/dev/null
show_outside 0 SET $NS/x 1 NX PX 1000
[[ $ANSWER == *NOPERM* ]] || wrong "a fenced member took a lock: $ANSWER"
fine "Redis runs and answers, and no client can take a lock on it yet"
show kubectl -n $NS wait --for=condition=Ready rq/demo --timeout=60s
show kubectl -n $NS get rq demo
show_outside 0 SET $NS/x 1 NX PX 1000
[[ $ANSWER == OK ]] || wrong "an admitted member refuses: $ANSWER"
fine "admitted, for every client at the same time"

# ------------------------------------------------------------------ claims ---

chapter "2. A claim is held, the next one waits"
tell "A DistributedLock with a claim names its holder. Two claims on one key: the first gets it, the second queues."
manifest <<END
apiVersion: redlock-operator.io/v1alpha1
kind: DistributedLock
metadata: {name: first}
spec: {quorumRef: {name: demo}, key: reindex, ttl: 5s, claim: {identity: job-1}}
END
show kubectl -n $NS wait --for=condition=Held dlock/first --timeout=10s
quietly_apply <<END
apiVersion: redlock-operator.io/v1alpha1
kind: DistributedLock
metadata: {name: second}
spec: {quorumRef: {name: demo}, key: reindex, ttl: 5s, claim: {identity: job-2}}
END
has dlock/second '.status.conditions[?(@.type=="Held")].reason' Queued
show kubectl -n $NS get dlock
first=$(field dlock/first .status.fencingToken)
tell "Every holder gets a fencing token. A resource that stores its largest token can refuse a paused holder that has lost the" \
  "lock. Now the first claim is deleted."
show kubectl -n $NS delete dlock first
show kubectl -n $NS wait --for=condition=Held dlock/second --timeout=10s
has dlock/second .status.votes 3/3 10s
second=$(field dlock/second .status.fencingToken)
show kubectl -n $NS get dlock
((second > first)) || wrong "the token went from $first to $second"
fine "the second claim holds the lock, and its token $second is greater than $first"

# --------------------------------------------------------------- elections ---

chapter "3. Three pods elect a leader, and a Service follows it"
tell "A DistributedLock with an election picks a leader among ready pods, and labels it. The application needs no library:" \
  "the Service below selects the label, so it sends to the leader only. (The application is Redis here.)"
manifest <<END
apiVersion: redlock-operator.io/v1alpha1
kind: DistributedLock
metadata: {name: scheduler}
spec:
  quorumRef: {name: demo}
  ttl: 3s
  election: {selector: {matchLabels: {app: scheduler}}}
---
apiVersion: v1
kind: Service
metadata: {name: scheduler-leader}
spec:
  selector: {leader.redlock-operator.io/scheduler: "true"}
  ports: [{port: 6379}]
END
quietly_apply <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: scheduler}
spec:
  replicas: 3
  selector: {matchLabels: {app: scheduler}}
  template:
    metadata: {labels: {app: scheduler}}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      securityContext: $POD_SECURITY
      containers:
      - name: app
        image: $REDIS
        imagePullPolicy: IfNotPresent
        command: [redis-server, --save, "", --protected-mode, "no", --dbfilename, \$(POD_NAME)]
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
        securityContext: $CONTAINER_SECURITY
END
kubectl -n $NS rollout status deployment/scheduler --timeout=60s >/dev/null

# The pod that answers behind the Service returns its name.
behind_the_service() {
  # shellcheck disable=SC2016
  kubectl -n $NS exec outside -- sh -c '
    i=0
    while answer=$(redis-cli -h scheduler-leader CONFIG GET dbfilename 2>&1 | tail -n 1); [ "$answer" != "$1" ] && [ $i -lt 50 ]; do
      i=$((i + 1)); sleep 0.1
    done
    echo "$answer"' - "$1"
}
show_leader() {
  local labelled answer
  has dlock/scheduler .status.holder.podName "$1"
  kubectl -n $NS wait "pod/$1" --for=jsonpath='{.metadata.labels.leader\.redlock-operator\.io/scheduler}=true' --timeout=5s >/dev/null ||
    wrong "the leader label is not on $1"
  show kubectl -n $NS get pods --selector app=scheduler --label-columns leader.redlock-operator.io/scheduler
  labelled=$(kubectl -n $NS get pods --selector leader.redlock-operator.io/scheduler=true -o name)
  [[ $labelled == "pod/$1" ]] || wrong "the leader label is on: $labelled"
  has endpointslice/"$(kubectl -n $NS get endpointslices --selector kubernetes.io/service-name=scheduler-leader -o jsonpath='{.items[0].metadata.name}')" \
    '.endpoints[*].targetRef.name' "$1" 10s
  answer=$(behind_the_service "$1")
  [[ $answer == "$1" ]] || wrong "behind the Service answers: $answer"
  fine "only $1 has the label, and connections to the Service reach it"
}
kubectl -n $NS wait --for=condition=Held dlock/scheduler --timeout=20s >/dev/null
leader=$(field dlock/scheduler .status.holder.podName)
show_leader "$leader"

tell "One container instance holds the leadership. The leader's process is killed. Kubernetes restarts its container, but the" \
  "restarted container has lost the leadership."
start=$(milliseconds)
kill_container "$leader" app
changes dlock/scheduler .status.holder.podName "$leader"
took=$(($(milliseconds) - start))
fine "$VALUE leads, $took ms after the command to kill $leader was given"
if [[ ${CLUSTER:-local} == local ]] && ((took >= 3000)); then wrong "that should take less than 3 s"; fi
show_leader "$VALUE"

# ------------------------------------------------------------------ master ---

chapter "4. A Redis master is killed: fenced, while the lock stays held"
tell "job-2 still holds its lock. One of the three masters is killed with SIGKILL. Kubernetes restarts it within two seconds," \
  "without its votes. Without a fence it could vote for a second holder immediately. A watch records every change of the lock."
kubectl -n $NS get dlock second --watch --no-headers \
  -o custom-columns='HELD:.status.conditions[?(@.type=="Held")].status,HOLDER:.status.holder.identity,TOKEN:.status.fencingToken,VOTES:.status.votes,UNTIL:.status.validUntil' \
  >"$TMP/watch" &
WATCH=$!
kill_container demo-1-0 redis
has rq/demo '.status.members[1].state' Fenced
members
reason=$(field rq/demo '.status.members[1].reason') rejoin=$(field rq/demo '.status.members[1].rejoinAt')
[[ $reason == Restarted ]] || wrong "the reason is $reason"
show_outside 1 SET $NS/y 1 NX PX 1000
[[ $ANSWER == *NOPERM* ]] || wrong "the restarted member took a lock: $ANSWER"
show kubectl -n $NS get dlock second
fine "the member runs and refuses all clients until $rejoin. Two of three votes keep the lock"
tell "The operator admits it when all of its earlier votes have expired, and then sets the key on it again."
has rq/demo '.status.members[1].state' Admitted 40s
admitted=$(field rq/demo '.status.members[1].admittedAt')
[[ ! $admitted < $rejoin ]] || wrong "admitted at $admitted, before $rejoin"
has dlock/second .status.votes 3/3 20s
members
show kubectl -n $NS get dlock second
fine "admitted at $admitted, not before $rejoin, and the votes are back at 3/3"

# ---------------------------------------------------------------- operator ---

chapter "5. The leading operator pod is killed: the lock stays held"
tell "Every replica of the operator renews all held locks, so no lock depends on the leader."
replica=$(kubectl -n $SYSTEM get lease redlock-operator -o jsonpath='{.spec.holderIdentity}')
term=$(kubectl -n $SYSTEM get lease redlock-operator -o jsonpath='{.spec.leaseTransitions}')
until_before=$(field dlock/second .status.validUntil)
tell "$replica leads."
kill_container "$replica" operator $SYSTEM
changes lease/redlock-operator .spec.leaseTransitions "$term" 20 $SYSTEM
changes dlock/second .status.validUntil "$until_before" 20
show kubectl -n $SYSTEM get pods --selector app.kubernetes.io/name=redlock-operator
show kubectl -n $NS get dlock second
kubectl -n $SYSTEM rollout status deployment/redlock-operator --timeout=60s >/dev/null
kill "$WATCH" 2>/dev/null || true
WATCH=''

tell "The watch has recorded these changes of the lock since chapter 4:"
awk '{ print $1, $2, $3, $4 }' "$TMP/watch" | uniq -c | awk '{ printf "    %3d versions: Held=%s holder=%s token=%s votes=%s\n", $1, $2, $3, $4, $5 }'
sort -c -k5,5 "$TMP/watch" || wrong "validUntil went back"
(($(awk '{ print $5 }' "$TMP/watch" | sort -u | wc -l) >= 5)) || wrong "the lock was not renewed"
if awk -v token="$second" '$1 != "True" || $2 != "job-2" || $3 != token { exit 1 }' "$TMP/watch"; then
  fine "held by job-2 under token $second throughout"
else
  wrong "the lock was lost for a while"
fi

# --------------------------------------------------------------------- end ---

chapter "6. The end"
tell "Deleting the namespace removes locks, quorum and pods."
show kubectl delete namespace $NS --timeout=120s
fine "nothing is left. All that was shown took $((SECONDS - START)) s."
