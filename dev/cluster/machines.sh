# shellcheck shell=bash
# Starts the machines of the cluster, which are processes with their own namespaces, and the daemons in them.
# Sourced by cluster.sh.

machines() { printf 'cp\n' && seq -f 'node%g' "$NODES"; }

# started_at PID: print the start time of a process. The PID and the start time together identify it permanently.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# machine_pid NAME: print the host's PID of the machine's first process, if it runs.
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
    "$ROOT/dev/cluster/init.sh" "$name" "$dir" </dev/null >"$RUN/log/$name-machine.log" 2>&1 9>&- &
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

# daemon_pid MACHINE NAME: print the PID of a running daemon inside the machine.
daemon_pid() {
  local machine pid name
  machine=$(machine_pid "$1") || return 1
  read -r pid 2>/dev/null <"$RUN/$1/$2.pid" || return 1
  name=$(tr '\0' '\n' 2>/dev/null <"/proc/$machine/root/proc/$pid/cmdline" | head -n 1) || return 1
  [[ ${name##*/} == "$2" ]] || return 1
  printf '%s\n' "$pid"
}

# launch MACHINE NAME COMMAND...: start a command in the background of a machine, and print its PID there.
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

# supervised MACHINE COMMAND...: start a daemon, and restart it when it ends. The scheduler ends if it cannot process the state after an
# outage of the API server. The file lock prevents a second daemon if `up` runs in the second before a restart.
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

# daemon_stop MACHINE NAME: kill a daemon like a crash, and wait for its end.
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
