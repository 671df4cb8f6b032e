#!/usr/bin/env bash
# foreseen.sh [SEED]: compares the blocks that the router foresees prompts under way to leave
# in a cache with the hits that vLLM's own schedulers of 0.32 and 0.33 then find. Their caches
# have room for all blocks. SEED is even; without it the script draws one.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${1:-$((RANDOM * 2))}
captures=$(mktemp -d)
trap 'rm -rf "$captures"' EXIT
export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=
for version in 0.32.0 0.33.0; do
  python=$PWD/.cache/vllm/$version/bin/python
  export PYTHONPATH=
  if [[ $version == 0.33.0 ]]; then # Python alone, on 0.32.0's libraries
    python=$PWD/.cache/vllm/0.32.0/bin/python PYTHONPATH=$PWD/.cache/vllm/0.33.0-python
  fi
  names=$("$python" test/vllm/scheduler.py --list | grep roomy)
  # shellcheck disable=SC2086
  nice "$python" test/vllm/scheduler.py --requests 160 --into "$captures" $(printf "%s:$seed " $names) 2>/dev/null
done
echo "seed $seed"
go test -count=1 -run TestWhatIsOnItsWayIsHit -v ./internal/cli/predict -captures "$captures/*.gz"
