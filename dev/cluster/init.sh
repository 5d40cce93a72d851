#!/usr/bin/env bash
# The first process of a "machine": cluster.sh starts it in mount, network, PID
# and host name namespaces of its own. It makes the file system look like that of
# a fresh machine and then only reaps. Killing it ends every process of the
# machine, and with them its mounts, pods and network: nothing can be left over.
# usage: init.sh NAME DIRECTORY
set -euo pipefail
name=$1 dir=$2

hostname "$name"
# Private copies of where containerd, kubelet and the CNI plugins keep their things.
for d in var/lib var/log; do
  mkdir -p "$dir/$d"
  mount --bind "$dir/$d" "/$d"
done
mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/lock /run/netns

# kubelet insists on these values, and they are the whole host's. Show it files
# that have them already, so that the host's own stay as they are.
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
# bash collects orphans by itself whenever a child of its own ends or it waits.
while :; do
  sleep 3600 &
  wait $! || true
done
