#!/usr/bin/env bash
# Regenerates the Go code of every .proto of this module. protoc comes from PyPI's
# grpcio-tools and the plugins from the Go toolchain; both have pinned versions.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=1.85.1 gen_go=v1.36.12 gen_grpc=v1.6.2
venv=.cache/proto-$tools
if [[ ! -x $venv/bin/python ]]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --require-hashes -r scripts/requirements/proto.txt
fi
bin=$PWD/.cache/bin
GOBIN=$bin go install "google.golang.org/protobuf/cmd/protoc-gen-go@$gen_go"
GOBIN=$bin go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$gen_grpc"
PATH=$bin:$PATH "$venv/bin/python" -m grpc_tools.protoc -I . \
	--go_out=. --go_opt=module=warmroute \
	--go-grpc_out=. --go-grpc_opt=module=warmroute \
	index/indexpb/index.proto internal/peers/peerspb/peers.proto
