#!/usr/bin/env bash
# Builds docs/ as a book with mdBook, in target/book. Links to files outside docs/ lead to the repository. Every link of the book must lead
# somewhere, and a search in headless Chromium must find a page.
#
# usage: dev/book.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MDBOOK_VERSION=0.4.52
BOOK=$ROOT/target/book
cd "$ROOT"
cargo_tool mdbook "$MDBOOK_VERSION" "$BIN/mdbook" --version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
repository=$(sed -n 's/^git-repository-url = "\(.*\)"/\1/p' docs/book.toml)
cp -r docs "$work/docs"
# mdBook renames the README of a folder to index.
find "$work/docs" -maxdepth 1 -name '*.md' -exec sed -i "s#](\.\./#]($repository/blob/v$version/#g" {} +
find "$work/docs" -mindepth 2 -name '*.md' -exec sed -i "s#](\.\./\.\./#]($repository/blob/v$version/#g; s#](\.\./reference/README\.md#](../reference/index.md#g" {} +
rm -rf "$BOOK"
"$BIN/mdbook" build "$work/docs" --dest-dir "$BOOK" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "mdBook failed"; }

broken=0 links=0
while IFS=: read -r page link; do
  links=$((links + 1))
  if [[ ! -e ${page%/*}/$link ]]; then
    warn "$page: $link"
    broken=1
  fi
done < <(grep -roE --include='*.html' --exclude={print,404}.html '(href|src)="[^"#:?]+["#?]' "$BOOK" | sed -E 's/:(href|src)="/:/; s/.$//')
((links > 1000)) || die "only $links links were found"
((broken == 0)) || die "links of the book lead nowhere"

if command -v chromium >/dev/null; then
  chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=10000 --dump-dom "file://$BOOK/faq.html?search=semaphore" >"$work/search" 2>/dev/null
  grep -q 'href="patterns.html?highlight=semaphore' "$work/search" || die "the search finds no page"
else
  say "    there is no chromium here: the search was not tried"
fi
say "    $(find "$BOOK" -name '*.html' | wc -l) pages and $links links in target/book"
