#!/usr/bin/env bash
# Builds the pinned grpcurl into .cache/bin: a test runs the worked example of docs/protocol.md with it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.9.3
[ "$(cat .cache/bin/grpcurl.version 2>/dev/null)" = "$version" ] && exit 0
mkdir -p .cache/bin
GOBIN=$PWD/.cache/bin go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$version"
echo "$version" >.cache/bin/grpcurl.version
