#!/usr/bin/env bash
# Installs the packages of a release into empty roots, runs the command there, and removes it. Lintian reads the Debian package.
#
# usage: dev/packages.sh FOLDER, as packaging/release.sh fills it
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# files LIST: print the files that both formats must have, without folders.
files() { grep -v -e '/$' -e /share/doc/ -e /share/licenses/ -e /share/lintian/ -e /share/zsh/ <<<"$1" | sed 's/^\.//' | LC_ALL=C sort; }

# works ROOT: check that the program runs by all its names, and has its completion and a manual page for each command.
works() {
  local name pages
  for name in redlock kubectl-redlock; do
    [[ $(chroot "$1" "/usr/bin/$name" --version) == "redlock $version" ]] || die "$name does not run in $1"
  done
  [[ -s $1/usr/share/bash-completion/completions/redlock ]] || die "$1 has no completion"
  pages=$(find "$1/usr/share/man/man1" -name 'redlock*.1.gz' | wc -l)
  ((pages >= 20)) || die "$1 has $pages manual pages"
}

# gone ROOT: check that no file of the package is left.
gone() { [[ -z $(find "$1/usr" ! -type d 2>/dev/null) ]] || die "files are left: $(find "$1/usr" ! -type d)"; }

(($# == 1)) || die "usage: dev/packages.sh FOLDER"
need_root
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
architecture=$(dpkg --print-architecture)
deb=$(echo "$1"/redlock_*_"$architecture".deb) rpm=$(echo "$1"/redlock-*."$(uname -m)".rpm)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step "The packages $(basename "$deb") and $(basename "$rpm")"
of_deb=$(files "$(dpkg-deb --contents "$deb" | awk '{ print $6 }')") of_rpm=$(files "$(rpm -qpl "$rpm")")
[[ $of_deb == "$of_rpm" ]] || die "other files: $(diff <(echo "$of_deb") <(echo "$of_rpm"))"
if command -v lintian >/dev/null; then
  # Other profiles than `dist` do not strip the program.
  lintian --allow-root --suppress-tags unstripped-binary-or-object --fail-on error,warning "$deb"
else
  say "    lintian is not there"
fi

mkdir -p "$work"/deb/var/lib/dpkg/{info,updates} "$work/rpm"
touch "$work/deb/var/lib/dpkg/status"
dpkg --root="$work/deb" --install "$deb" >/dev/null
works "$work/deb"
dpkg --root="$work/deb" --purge redlock >/dev/null
gone "$work/deb"
rpm --root "$work/rpm" --install "$rpm"
works "$work/rpm"
rpm --root "$work/rpm" --erase redlock
gone "$work/rpm"
