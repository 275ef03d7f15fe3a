#!/usr/bin/env bash
# Doc paragraphs that open with What, Whether, How, Its, Of or Those (a doc comment opens with its
# subject), and lines beyond column 100. Neither number may rise above that in .ci/language.max;
# one that fell may be lowered there. `.ci/language.sh -v` lists them.
set -euo pipefail
cd "$(dirname "$0")/.."
# Pages of results are written by a program.
found=$(git ls-files -co --exclude-standard '*.rs' '*.md' ':!docs/results' | while read -r file; do
  [ ! -f "$file" ] || printf '%s\n' "$file"
done | LC_ALL=C xargs awk -f .ci/language.awk)
[ "${1-}" != -v ] || printf '%s\n' "$found"
failed=0
while read -r kind most; do
  now=$(grep -cE "^[^:]+:[0-9]+: $kind" <<<"$found" || true)
  if [ "$now" -gt "$most" ]; then
    echo "$kind: $now, more than the $most of .ci/language.max (.ci/language.sh -v lists them)" >&2
    failed=1
  elif [ "$now" -lt "$most" ]; then
    echo "$kind: $now; .ci/language.max may be lowered from $most"
  fi
done <.ci/language.max
exit $failed
