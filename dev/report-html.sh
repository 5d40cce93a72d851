#!/usr/bin/env bash
# Opens the page of `redlock report --html` in a headless browser, and checks that its screenshot is not that of an empty page.
#
#   dev/report-html.sh       checks; leaves the screenshot in .local/report.png
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PAGE=$LOCAL/report.html
cd "$ROOT"
mkdir -p "$LOCAL"

needs chromium chromium

# screenshot URL FILE: write a screenshot within a minute, without a profile and without a network.
screenshot() {
  local profile
  profile=$(mktemp -d)
  rm -f "$2"
  timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,900 \
    --user-data-dir="$profile" --host-resolver-rules='MAP * ~NOTFOUND' --screenshot="$2" "$1" >"$LOCAL/chromium.log" 2>&1 ||
    { tail -n 20 "$LOCAL/chromium.log" && die "chromium made no screenshot of $1"; }
  rm -rf "$profile"
  [[ -s $2 ]] || die "chromium made no screenshot of $1: see $LOCAL/chromium.log"
}

step "A page of redlock report --html"
rm -f "$PAGE"
REDLOCK_KEEP_PAGE=$PAGE cargo test --quiet --workspace --locked --test run a_report_has_a_page_for_a_browser
[[ -s $PAGE ]] || die "the test left no page"

step "The page in chromium"
screenshot "file://$PAGE" "$LOCAL/report.png"
screenshot about:blank "$LOCAL/blank.png"
size=$(stat -c %s "$LOCAL/report.png") blank=$(stat -c %s "$LOCAL/blank.png")
# A picture of one colour compresses to almost nothing.
((size > 4 * blank)) || die "the page is blank: $LOCAL/report.png has $size bytes, an empty page $blank"
say "    $LOCAL/report.png: $size bytes, an empty page has $blank"
