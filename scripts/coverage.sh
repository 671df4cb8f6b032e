#!/usr/bin/env bash
# coverage.sh profile…: how many statements of both binaries' own packages their
# own tests reach, by the profiles of runs that were made anyway: of each package,
# and of all, which must be 80 %. Generated code is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
least=80
go list -deps ./cmd/extproc ./cmd/kvsub | grep '^warmroute/' |
  awk -v least="$least" '
    FNR == NR { ours[$1]; next }
    /^mode:/ || /\.pb\.go:/ { next }
    {
      pkg = $1; sub(/\/[^\/]*$/, "", pkg)
      if (!(pkg in ours)) next
      stmts[$1] = $2; at[$1] = pkg
      if ($3 > 0) hit[$1]
    }
    END {
      for (b in stmts) {
        all += stmts[b]; total[at[b]] += stmts[b]
        if (b in hit) { some += stmts[b]; reached[at[b]] += stmts[b] }
      }
      for (p in total) {
        printf "%5.1f %% of %5d  %s\n", 100 * reached[p] / total[p], total[p], p
      }
      if (all == 0) { print "coverage: no profile has a statement of these packages" > "/dev/stderr"; exit 1 }
      printf "%5.1f %% of %5d  statements of both binaries, by the tests of their own packages\n", 100 * some / all, all
      if (100 * some < least * all) { print "coverage: less than " least " %" > "/dev/stderr"; exit 1 }
    }' - "$@" | sort -n
