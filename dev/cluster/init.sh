#!/usr/bin/env bash
# The first process of a "machine". cluster.sh starts it in new mount, network, PID and
# host name namespaces. It makes the file system look like that of a fresh machine, and
# then only reaps orphans. Its end kills every process of the machine, and removes the
# machine's mounts, pods and network.
# usage: init.sh NAME DIRECTORY
set -euo pipefail
name=$1 dir=$2

hostname "$name"
# containerd, kubelet and the CNI plugins get private copies of these folders.
for d in var/lib var/log; do
  mkdir -p "$dir/$d"
  mount --bind "$dir/$d" "/$d"
done
mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/lock /run/netns

# kubelet sets these values, and they belong to the whole host. It finds files that have
# the values already, so it does not change those of the host.
pretend() {
  if [[ -e /proc/sys/$1 ]]; then
    mkdir -p /run/sysctl
    printf '%s\n' "$2" >"/run/sysctl/${1//\//.}"
    mount --bind "/run/sysctl/${1//\//.}" "/proc/sys/$1"
  fi
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000

: >"$dir/ready"
# bash reaps orphans automatically when one of its children ends, or when it waits.
while :; do
  sleep 3600 &
  wait $! || true
done
