#!/usr/bin/env bash
# Makes a Debian package and an RPM of the command `redlock`, with its manual pages, its completions, and the names of a plugin for kubectl.
# The tools of the formats build them, so nothing is fetched (Debian: dpkg and rpm). The same program gives the same bytes.
#
# usage: packaging/packages.sh amd64|arm64 PROGRAM NATIVE DIRECTORY; NATIVE is the program of this machine, which prints the pages
#
#   SOURCE_DATE_EPOCH   time of all files (default: 0)
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')
SUMMARY='Commands under distributed locks of Kubernetes and Redis'
HOMEPAGE=https://github.com/redlock-operator/redlock-operator
VENDOR='The authors of redlock-operator <redlock-operator@users.noreply.github.com>'

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# tree DIRECTORY ZSH_FOLDER: write the files of both packages. The folders for completions of zsh differ.
tree() {
  local usr=$1/usr share=$1/usr/share page
  install -D -m 0755 "$program" "$usr/bin/redlock"
  install -d "$share/man/man1"
  "$native" man "$work/man" >/dev/null
  for page in "$work/man"/*.1; do gzip -9 -n <"$page" >"$share/man/man1/${page##*/}.gz"; done
  # kubectl finds a plugin and its completions by these names.
  for page in kubectl-redlock kubectl_complete-redlock; do
    ln -s redlock "$usr/bin/$page"
    ln -s redlock.1.gz "$share/man/man1/$page.1.gz"
  done
  install -d "$share/bash-completion/completions" "$share/fish/vendor_completions.d" "$share/zsh/$2"
  "$native" completions bash >"$share/bash-completion/completions/redlock"
  "$native" completions fish >"$share/fish/vendor_completions.d/redlock.fish"
  "$native" completions zsh >"$share/zsh/$2/_redlock"
}

# normal DIRECTORY: set modes and times that do not depend on this machine.
normal() {
  chmod -R u=rwX,go=rX "$1"
  find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

debian() {
  local root=$work/deb doc=$work/deb/usr/share/doc/redlock
  tree "$root" vendor-completions
  install -D -m 0644 /dev/stdin "$doc/copyright" <<END_OF_FILE
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: redlock-operator
Source: $HOMEPAGE

Files: *
Copyright: 2026 The authors of redlock-operator
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
END_OF_FILE
  printf 'redlock (%s) unstable; urgency=medium\n\n  * See %s/blob/v%s/CHANGELOG.md.\n\n -- %s  %s\n' \
    "$tilde" "$HOMEPAGE" "$version" "$VENDOR" "$DATE" | gzip -9 -n >"$doc/changelog.gz"
  # Lintian reports the program as a shared library, because it is static and position-independent.
  install -D -m 0644 /dev/stdin "$root/usr/share/lintian/overrides/redlock" <<'END_OF_FILE'
redlock: shared-library-lacks-prerequisites [usr/bin/redlock]
END_OF_FILE
  install -D -m 0644 /dev/stdin "$root/DEBIAN/control" <<END_OF_FILE
Package: redlock
Version: $tilde
Architecture: $architecture
Maintainer: $VENDOR
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: admin
Priority: optional
Homepage: $HOMEPAGE
Description: $SUMMARY
 Takes and shows the locks of redlock-operator. A script, a CronJob or a
 process runs under a lock, in Kubernetes or outside of it. With kubectl it is
 the plugin "kubectl redlock".
END_OF_FILE
  (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$work/md5sums"
  install -m 0644 "$work/md5sums" "$root/DEBIAN/md5sums"
  normal "$root"
  dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$directory/redlock_${tilde}_$architecture.deb" >/dev/null
}

rpm_package() {
  local root=$work/rpm
  tree "$root" site-functions
  install -D -m 0644 "$ROOT/LICENSE" "$root/usr/share/licenses/redlock/LICENSE"
  normal "$root"
  cat >"$work/redlock.spec" <<END_OF_FILE
Name: redlock
Version: $tilde
Release: 1
Summary: $SUMMARY
License: Apache-2.0
URL: $HOMEPAGE
Packager: $VENDOR
AutoReqProv: no
%description
Takes and shows the locks of redlock-operator. A script, a CronJob or a
process runs under a lock, in Kubernetes or outside of it. With kubectl it is
the plugin "kubectl redlock".
%install
cp -a $root/. %{buildroot}
%files
$(cd "$root" && find usr \( -type f -o -type l \) -printf '/%p\n' | LC_ALL=C sort)
END_OF_FILE
  # The options keep the program unchanged: rpmbuild neither strips nor analyses it.
  rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $work/rpmbuild" --define "_rpmdir $work/rpms" \
    --define '_build_id_links none' --define '__os_install_post %{nil}' --define 'debug_package %{nil}' --define '_buildhost localhost' \
    --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' --define '_binary_payload w6.gzdio' \
    "$work/redlock.spec" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "rpmbuild failed"; }
  cp "$work/rpms/$machine/redlock-$tilde-1.$machine.rpm" "$directory/"
}

(($# == 4)) || die "usage: packaging/packages.sh amd64|arm64 PROGRAM NATIVE DIRECTORY"
architecture=$1 program=$2 native=$3 directory=$(realpath "$4")
case $architecture in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) die "$architecture: write amd64 or arm64" ;;
esac
for tool in dpkg-deb rpmbuild; do command -v $tool >/dev/null || die "$tool is needed: apt-get install dpkg rpm"; done
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
tilde=${version/-/'~'} # in both formats 1.0~rc1 is older than 1.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian
rpm_package
