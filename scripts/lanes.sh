# Steps in lanes that run side by side, for scripts that source this:
#
#   quiet() { step "a check" make check; step "another" make other; }
#   lanes calm:0 busy:5      two functions, each with its niceness
#
# The steps of a lane run one after the other. A step's output appears when the step has
# ended, in one piece, with its seconds. The first step that fails ends the other lanes,
# and its output comes last.
scratch=$(mktemp -d)
groups=() # process groups, one of each lane
trap 'end_lanes; report; rm -rf "$scratch"' EXIT
trap 'echo "== interrupted; under way: $(cat "$scratch"/*.name 2>/dev/null | paste -sd, -)" >&2; exit 130' INT TERM

step() { # name command…
  local name=$1 began=$SECONDS out code=0
  out=$(mktemp "$scratch/XXXXXX")
  shift
  echo "$name" >"$out.name"
  printf '== %s: begins (at %ss)\n' "$name" "$began"
  "$@" >"$out" 2>&1 || code=$?
  rm "$out.name"
  if [ "$code" -ne 0 ]; then
    mkdir "$scratch/failed" 2>/dev/null || return "$code" # a step of another lane failed first
    printf '%s' "$name" >"$scratch/failed/name"
    cp "$out" "$scratch/failed/output"
    return "$code"
  fi
  flock "$scratch" awk -v head="== $name: passed in $((SECONDS - began))s, and printed" '{ print NR == 1 ? head "\n" $0 : $0 } END { if (NR == 0) print head " nothing" }' "$out"
}

lanes() { # function:niceness…
  local lane code=0
  set -m # gives each lane a process group of its own, so that one signal ends it
  for lane in "$@"; do
    (renice -n "${lane#*:}" -p "$BASHPID" >/dev/null && "${lane%:*}") &
    groups+=($!)
  done
  set +m
  for lane in "$@"; do
    wait -n || { code=$?; break; }
  done
  end_lanes
  return "$code"
}

report() { # prints the step that failed
  [ -d "$scratch/failed" ] || return 0
  local name; name=$(cat "$scratch/failed/name")
  printf '== FAILED: %s, and printed (at %ss)\n' "$name" "$SECONDS"
  cat "$scratch/failed/output"
  printf '== FAILED: %s\n' "$name"
}

end_lanes() {
  local lane
  for lane in "${groups[@]}"; do # a group can outlive its first shell
    kill -TERM -- "-$lane" 2>/dev/null || true
  done
  wait 2>/dev/null || true
}
