#!/usr/bin/env bash
# Runs the steps of the Dockerfile without Docker. It copies the files of the first stage to an empty folder, and runs the stage's script
# there. The result must be one static program that runs without any other file. The second stage only copies the result. Cargo's profile is
# `quick` unless PROFILE sets another one.
#
# usage: dev/dockerfile.sh; the file system of the image is in .local/dockerfile/image afterwards
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SOURCES=$LOCAL/dockerfile/src
IMAGE=$LOCAL/dockerfile/image
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target} PROFILE=${PROFILE:-quick}

# first_stage INSTRUCTION: print the arguments of this instruction in the first stage, line by line.
first_stage() { awk -v want="$1" '/^FROM / { stage++ } stage == 1 && $1 == want { $1 = ""; print substr($0, 2) }' "$ROOT/Dockerfile"; }

# The copies keep the times of the files, so that Cargo compiles only changed files.
copy_sources() {
  local line words
  rm -rf "$SOURCES"
  mkdir -p "$SOURCES"
  while read -r line; do
    read -ra words <<<"$line"
    ((${#words[@]} >= 2)) || die "Dockerfile: COPY $line"
    # If the last argument is a folder, the files go into it. Otherwise it is the new name of one file or folder.
    if [[ ${words[-1]} == */ ]]; then
      (cd "$ROOT" && cp -a "${words[@]:0:${#words[@]}-1}" "$SOURCES/${words[-1]}")
    else
      ((${#words[@]} == 2)) || die "Dockerfile: COPY $line"
      cp -a "$ROOT/${words[0]}" "$SOURCES/${words[1]}"
    fi
  done < <(first_stage COPY)
}

case $(uname -m) in
  x86_64) TARGETARCH=amd64 ;;
  aarch64) TARGETARCH=arm64 ;;
  *) die "the image is made for amd64 and arm64" ;;
esac

step "The Dockerfile's steps ($TARGETARCH, profile $PROFILE)"
copy_sources
# With a default, BuildKit would not set it to the platform of the build.
[[ $(first_stage ARG) == TARGETARCH ]] || die "Dockerfile: the first stage needs ARG TARGETARCH without a default, and no other ARG"
mapfile -t commands < <(first_stage RUN | grep -v '^apt-get ')
# shellcheck disable=SC2016  # as it is written there
[[ ${#commands[@]} == 1 && ${commands[0]} == 'packaging/image.sh "$TARGETARCH" /image' ]] ||
  die "Dockerfile: this script runs only packaging/image.sh, but the Dockerfile runs: ${commands[*]}"
(cd "$SOURCES" && packaging/image.sh "$TARGETARCH" "$IMAGE")

files=$(cd "$IMAGE" && find . -type f | LC_ALL=C sort | tr '\n' ' ')
[[ $files == './etc/ssl/certs/ca-certificates.crt ./usr/local/bin/redlock ' ]] || die "the image has other files than it should: $files"
authorities=$(grep -c 'BEGIN CERTIFICATE' "$IMAGE/etc/ssl/certs/ca-certificates.crt")
((authorities > 50)) || die "the image has $authorities certificates of authorities"
# Run the program as the image's user, with the image as its root and without environment variables.
run=(env -i "$IMAGE/usr/local/bin/redlock")
if ((EUID == 0)); then run=(env -i "$(type -P chroot)" --userspec=65532:65532 "$IMAGE" /usr/local/bin/redlock); fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
said=$("${run[@]}" --version)
[[ $said == "redlock $version" ]] || die "the program prints $said, but Cargo.toml has $version"
kinds=$("${run[@]}" crds | grep -c '^kind: CustomResourceDefinition')
((kinds == 2)) || die "the program prints $kinds CustomResourceDefinitions"
say "    one static program of $(du -h "$IMAGE/usr/local/bin/redlock" | cut -f1), and $authorities authorities"
