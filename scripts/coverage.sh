#!/usr/bin/env bash
# coverage.sh PROFILE…: prints the share of statements that tests reach in each package of
# both binaries, and in all of them together, which must be 80 %. It reads the profiles of
# runs that happen anyway, and leaves generated code out.
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
