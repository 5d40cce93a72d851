#!/usr/bin/env bash
# Writes all files of a release into one folder: the chart's package, the manifests, the bundle for OLM, static programs, and their packages
# (deb, rpm). It adds krew's manifest, a bill of materials (CycloneDX), the section of CHANGELOG.md, and checksums of all files. The version
# is that of Cargo.toml. This script publishes nothing. The workflow `release` publishes the files.
#
# usage: packaging/release.sh, with
#   DIST=folder              the folder (default: dist)
#   ARCHITECTURES="amd64 arm64"
#   PROFILE=quick            Cargo's profile of the programs (default: dist)
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$ROOT"
DIST=$(realpath -m "${DIST:-dist}")
read -ra architectures <<<"${ARCHITECTURES:-amd64 arm64}"
TOOLS=$ROOT/.local
CYCLONEDX_VERSION=0.5.9
export PATH=$TOOLS/bin:$PATH PROFILE=${PROFILE:-dist}

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "Cargo.toml: version \"$version\""
# A workflow on a tag releases the tag's version.
if [[ ${GITHUB_REF_TYPE:-} == tag && ${GITHUB_REF_NAME:-} != "v$version" ]]; then
  die "the tag ${GITHUB_REF_NAME:-} is not the version of Cargo.toml, v$version"
fi
# Go finds this version of the module by a separate tag.
if [[ ${GITHUB_REF_TYPE:-} == tag && $(git rev-parse --quiet --verify "refs/tags/go/v$version^{commit}") != $(git rev-parse HEAD) ]]; then
  die "the tag go/v$version of the Go module is missing on this commit: push it, and then v$version again"
fi
command -v helm >/dev/null || die "helm is needed"
if [[ $(cargo cyclonedx --version 2>/dev/null) != *" $CYCLONEDX_VERSION" ]]; then
  CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --debug --locked --version "=$CYCLONEDX_VERSION" --root "$TOOLS" cargo-cyclonedx
fi

rm -rf "$DIST"
mkdir -p "$DIST"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The same contents give the same bytes, on each machine and at any time.
epoch=$(git log -1 --format=%ct 2>/dev/null || printf 0)
archive() { tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$2" -cf - "${@:3}" | gzip -n >"$1"; }

printf '==> The release %s\n' "$version"
for architecture in "${architectures[@]}"; do
  packaging/image.sh "$architecture" "$work/$architecture"
  install -m 0755 "$work/$architecture/usr/local/bin/redlock" "$work/redlock"
  cp LICENSE "$work/LICENSE"
  archive "$DIST/redlock_${version}_linux_$architecture.tar.gz" "$work" redlock LICENSE
done
# All architectures have the same pages and completions, which the program of this machine prints.
for architecture in "${architectures[@]}"; do
  SOURCE_DATE_EPOCH=$epoch packaging/packages.sh "$architecture" "$work/$architecture/usr/local/bin/redlock" \
    "$work/$(dpkg --print-architecture)/usr/local/bin/redlock" "$DIST"
done

# krew's manifest of `kubectl redlock` gets the checksums of these archives.
{
  cat packaging/krew.yaml
  for architecture in "${architectures[@]}"; do
    name=redlock_${version}_linux_$architecture.tar.gz
    printf '  - selector: {matchLabels: {os: linux, arch: %s}}\n' "$architecture"
    printf '    uri: https://github.com/redlock-operator/redlock-operator/releases/download/v%s/%s\n' "$version" "$name"
    printf '    sha256: %s\n    bin: redlock\n' "$(sha256sum "$DIST/$name" | cut -d' ' -f1)"
  done
} >"$DIST/krew.yaml"
grep -qx "  version: v$version" "$DIST/krew.yaml" || die "packaging/krew.yaml has another version than Cargo.toml"

helm package charts/redlock-operator --destination "$DIST" >/dev/null
[[ -s $DIST/redlock-operator-$version.tgz ]] || die "the chart has another version than Cargo.toml"
cp manifests/install.yaml "$DIST/install.yaml"
grep -q "redlock-operator:$version\"" "$DIST/install.yaml" || die "manifests/install.yaml has another version than Cargo.toml"
cat crds/*.yaml >"$DIST/crds.yaml"
packaging/bundle.sh "$work/olm"
archive "$DIST/redlock-operator-olm-$version.tar.gz" "$work/olm" bundle
cp "$work/olm/policies.yaml" "$DIST/policies.yaml"

# The bill of materials has the program's crate and all dependencies that are compiled in for Linux.
cargo cyclonedx --quiet --manifest-path "$ROOT/Cargo.toml" --format json --spec-version 1.5 \
  --target x86_64-unknown-linux-musl --override-filename redlock-sbom
mv "$ROOT/redlock-sbom.json" "$DIST/redlock_$version.cdx.json"
# cargo-cyclonedx writes one file for each member of the workspace.
find "$ROOT/crates" -name redlock-sbom.json -delete
grep -q '"bomFormat": "CycloneDX"' "$DIST/redlock_$version.cdx.json" || die "the bill of materials is none"

# The notes are the section of this version, or of unreleased changes if this version has no section yet.
section() { awk -v title="$1" 'index($0, "## [" title "]") == 1 { found = 1; next } /^## \[/ { found = 0 } found' CHANGELOG.md; }
section "$version" >"$DIST/NOTES.md"
if ! grep -q '[^[:space:]]' "$DIST/NOTES.md"; then
  [[ ${GITHUB_REF_TYPE:-} != tag ]] || die "CHANGELOG.md has no section [$version]"
  section Unreleased >"$DIST/NOTES.md"
fi
grep -q '[^[:space:]]' "$DIST/NOTES.md" || die "CHANGELOG.md has no text for this release"

(cd "$DIST" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
(cd "$DIST" && stat --printf '    %n %s\n' -- *)
