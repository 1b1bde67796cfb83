#!/usr/bin/env bash
# Builds an older skein and drills the way from it to this one and back. $1 is a git ref. Without it the older one is this one, but
# knows formats of stores only as far as it makes new ones: as the release before one that knows more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
if [[ -n $1 ]]; then
  git worktree add --quiet --detach "$work/tree" "$1"
  echo "the old program is $(git -C "$work/tree" log -1 --format='%h of %cd: %s' --date=short)"
  (cd "$work/tree" && CGO_ENABLED=0 go build -buildvcs=auto -o "$work/skein" ./cmd/skein)
else
  formats=projections/store/format.go
  sed 's/^\tnewestFormat = .*/\tnewestFormat = newFormat/' "$formats" >"$work/format.go"
  if cmp -s "$formats" "$work/format.go"; then
    echo "upgrade:drill: $formats has no line that sets newestFormat" >&2
    exit 1
  fi
  printf '{"Replace": {"%s/%s": "%s/format.go"}}' "$PWD" "$formats" "$work" >"$work/overlay.json"
  CGO_ENABLED=0 go build -overlay "$work/overlay.json" -buildvcs=auto -o "$work/skein" ./cmd/skein
  export SKEIN_OLD_REFUSES=1
fi
# For prepared upgrades, the older program also folds counters in another version.
drills='TestUpgradeAndDowngradeKeepAnswers|TestRollingUpgradeFailsNoCall'
if [[ -z $1 ]]; then
  counters=projections/counters/counters.go
  sed 's/^\(func (\*Counters) Version() uint32 { return [0-9]*\) }/\1 - 1 }/' "$counters" >"$work/counters.go"
  if cmp -s "$counters" "$work/counters.go"; then
    echo "upgrade:drill: $counters has no line that returns the version of the fold" >&2
    exit 1
  fi
  printf '{"Replace": {"%s/%s": "%s/counters.go"}}' "$PWD" "$counters" "$work" >"$work/overlay-fold.json"
  CGO_ENABLED=0 go build -overlay "$work/overlay-fold.json" -buildvcs=auto -o "$work/skein-old-fold" ./cmd/skein
  drills+='|TestPreparedUpgradeFailsNoRead|TestPreparedUpgradeOfNodesFailsNoRead'
fi
nodes=
help=$("$work/skein" serve --help) # a pipe to grep -q may end the program by SIGPIPE, and the nodes would be left out
if [[ $help == *--node-addr* ]]; then # it knows clusters
  nodes='|TestRollingUpgradeOfNodesFailsNoRead'
fi
SKEIN_OLD=$work/skein SKEIN_OLD_FOLD=$work/skein-old-fold go test -count 1 -timeout 80m -tags upgrade -v -run "^($drills$nodes)\$" ./cmd/skein
