#!/usr/bin/env bash
# Writes container images without a registry or Docker. Each image is a docker-archive
# with one layer: programs of this machine or of Debian's archive, and the libraries that they link. The same
# contents give the same bytes, so an unchanged program gives an unchanged image.
# usage: image.sh [valkey] [redis] [redis-clock] [pause] [coredns] [operator[=BINARY]] [operator-next]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
umask 022

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# rootfs NAME: start an empty root file system and print where it is.
rootfs() {
  local fs=$WORK/$1/rootfs d
  mkdir -p "$fs"/usr/{bin,lib,lib64} "$fs"/{etc,proc,sys,dev,run}
  mkdir -m 1777 "$fs/tmp" "$fs/data"
  for d in bin lib lib64; do ln -s "usr/$d" "$fs/$d"; done
  ln -s usr/bin "$fs/sbin"
  ln -s bin "$fs/usr/sbin"
  cat >"$fs/etc/passwd" <<EOF
root:x:0:0:root:/:/bin/sh
redis:x:999:999:redis:/data:/bin/sh
nonroot:x:65532:65532:nonroot:/tmp:/bin/sh
EOF
  printf 'root:x:0:\nredis:x:999:\nnonroot:x:65532:\n' >"$fs/etc/group"
  printf 'hosts: files dns\n' >"$fs/etc/nsswitch.conf"
  printf '%s\n' "$fs"
}

# program FS SOURCE TARGET: a program and every library that ldd names for it.
program() {
  local fs=$1 source=$2 target=$3 lib
  [[ -x $source ]] || die "$source: no such program"
  install -D -m 0755 "$(readlink -f "$source")" "$fs$target"
  # ldd fails for a static program, which is fine: it needs no libraries.
  for lib in $({ ldd "$source" 2>/dev/null || true; } | grep -oE '/[^ ]+' | sort -u); do
    [[ -e $fs$lib ]] || install -D -m 0755 "$(readlink -f "$lib")" "$fs$lib"
  done
}

# save NAME REFERENCE USER ENTRYPOINT...: turn the file system into $IMAGES/NAME.tar.
save() {
  local name=$1 reference=$2 user=$3 dir=$WORK/$1 layer config entrypoint
  shift 3
  entrypoint=$(printf ',"%s"' "$@")
  archive "$dir/layer.tar" "$dir/rootfs" .
  layer=$(sha256sum "$dir/layer.tar" | cut -d' ' -f1)
  printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{"User":"%s","Env":["PATH=/usr/bin:/bin"],"Entrypoint":[%s],"WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"1970-01-01T00:00:00Z"}]}' \
    "$(dpkg --print-architecture)" "$user" "${entrypoint#,}" "$layer" >"$dir/config.json"
  config=$(sha256sum "$dir/config.json" | cut -d' ' -f1)
  mv "$dir/config.json" "$dir/$config.json"
  printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$config" "$reference" >"$dir/manifest.json"
  mkdir -p "$IMAGES"
  archive "$IMAGES/.$name.tar" "$dir" manifest.json "$config.json" layer.tar
  if cmp -s "$IMAGES/.$name.tar" "$IMAGES/$name.tar"; then
    rm "$IMAGES/.$name.tar"
    say "    $reference unchanged (${config:0:12})"
  else
    mv "$IMAGES/.$name.tar" "$IMAGES/$name.tar"
    say "    $reference written to ${IMAGES#"$ROOT"/}/$name.tar (${config:0:12})"
  fi
}

# archive TAR DIRECTORY FILE...: write a tar that depends only on the contents of the files.
archive() {
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -cf "$1" -C "$2" "${@:3}"
}

# shell_tools FS: add sh and the other applets of busybox.
shell_tools() {
  local fs=$1 applet
  program "$fs" /usr/bin/getent /usr/bin/getent
  program "$fs" /bin/busybox /usr/bin/busybox
  for applet in $(/bin/busybox --list); do
    [[ -e $fs/usr/bin/$applet ]] || ln -s busybox "$fs/usr/bin/$applet"
  done
}

# redis_programs FS: the programs of this machine's Redis.
redis_programs() {
  program "$1" /usr/bin/redis-server /usr/bin/redis-server
  program "$1" /usr/bin/redis-cli /usr/bin/redis-cli
}

image_redis() {
  local fs
  fs=$(rootfs redis)
  redis_programs "$fs"
  shell_tools "$fs"
  save redis "$REDIS_IMAGE" 999:999 redis-server
}

# Make a Redis image with a wall clock that is shifted by the milliseconds in /dev/shm/clock.
image_redis-clock() {
  local fs
  fs=$(rootfs redis-clock)
  program "$fs" /usr/bin/redis-server /usr/bin/redis-server.real
  program "$fs" /usr/bin/redis-cli /usr/bin/redis-cli
  gcc -O2 -shared -fPIC -o "$fs/usr/lib/shifted_clock.so" "$ROOT/tests/redis/shifted_clock.c"
  cat >"$fs/usr/bin/redis-server" <<'EOF'
#!/bin/sh
export CLOCK_OFFSET_FILE=/dev/shm/clock LD_PRELOAD=/usr/lib/shifted_clock.so
exec /usr/bin/redis-server.real "$@"
EOF
  chmod 0755 "$fs/usr/bin/redis-server"
  shell_tools "$fs"
  save redis-clock "$REDIS_CLOCK_IMAGE" 999:999 redis-server
}

# Make an image of Valkey, with its own C library. The programs have the names of Redis as links, as in Valkey's own image.
image_valkey() {
  local fs
  fs=$(rootfs valkey)
  if "$ROOT/dev/redis.sh"; then
    valkey_programs "$fs"
  else
    warn "Valkey cannot be downloaded, so the members run this machine's Redis"
    redis_programs "$fs"
  fi
  shell_tools "$fs"
  save valkey "$MEMBER_IMAGE" 999:999 redis-server
}

# valkey_programs FS: the programs of Valkey, with the libraries beside them, and links with the names of Redis.
valkey_programs() {
  local fs=$1 loader lib program
  loader=$(redis_loader)
  # The interpreter that the programs name is a link to the loader.
  cp -P "$NEWER_REDIS"/usr/lib64/ld-linux-* "$fs/usr/lib64" 2>/dev/null || cp -P "$NEWER_REDIS"/usr/lib/ld-linux-* "$fs/usr/lib"
  install -D -m 0755 "$loader" "$fs${loader#"$NEWER_REDIS"}"
  for program in cli server; do
    install -m 0755 "$NEWER_REDIS/usr/bin/valkey-$program" "$fs/usr/bin/valkey-$program"
    ln -s "valkey-$program" "$fs/usr/bin/redis-$program"
    for lib in $("$loader" --library-path "${loader%/*}" --list "$NEWER_REDIS/usr/bin/valkey-$program" | grep -oE "$NEWER_REDIS/[^ ]+"); do
      [[ -e $fs${lib#"$NEWER_REDIS"} ]] || install -D -m 0755 "$lib" "$fs${lib#"$NEWER_REDIS"}"
    done
  done
}

image_pause() {
  mkdir -p "$WORK/pause/rootfs"
  gcc -Os -static -s -o "$WORK/pause/rootfs/pause" "$ROOT/dev/pause.c"
  save pause "$PAUSE_IMAGE" 65535:65535 /pause
}

image_coredns() {
  local fs
  fs=$(rootfs coredns)
  program "$fs" "$BIN/coredns" /coredns
  save coredns "$COREDNS_IMAGE" 65532:65532 /coredns
}

image_operator() {
  local fs
  fs=$(rootfs operator)
  program "$fs" "${1:-$ROOT/target/debug/redlock}" /usr/local/bin/redlock
  install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$fs/etc/ssl/certs/ca-certificates.crt"
  save operator "$OPERATOR_IMAGE" 65532:65532 /usr/local/bin/redlock
}

# Make an image of the same program with another name, for tests of upgrades.
image_operator-next() {
  local fs
  fs=$(rootfs operator-next)
  program "$fs" "$ROOT/target/debug/redlock" /usr/local/bin/redlock
  install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$fs/etc/ssl/certs/ca-certificates.crt"
  save operator-next "$OPERATOR_NEXT_IMAGE" 65532:65532 /usr/local/bin/redlock
}

(($#)) || die "usage: image.sh [valkey] [redis] [redis-clock] [pause] [coredns] [operator[=BINARY]] [operator-next]"
step "Images: $*"
for image in "$@"; do
  case $image in
    redis | redis-clock | valkey | pause | coredns | operator | operator-next) "image_$image" ;;
    operator=*) image_operator "${image#*=}" ;;
    *) die "no such image: $image" ;;
  esac
done
