#!/usr/bin/env bash
# install-gateways.sh [MODULE...]: builds the programs of test/gateways, and for test/vllm the last, from Go modules into
# .cache/gateways: the API server of Kubernetes and etcd, Istio's control plane, Envoy
# Gateway, and llm-d's sidecar. It copies the resource definitions that clusters would have
# from the same modules. The first time all take about 30 CPU minutes, the sidecar alone 3;
# later runs do nothing while the versions stay. The go.mod files in test/gateways have the
# versions.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/gateways
mkdir -p "$out"
[ $# -gt 0 ] || set -- kubernetes istio envoygateway llmd

# copy NAME MODULE FILES: resource definitions of a module.
copy() {
  mkdir -p "$out/crds/$1"
  dir=$(go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  # shellcheck disable=SC2086
  (cd "$dir" && install -m 644 $3 "$out/crds/$1/")
}
# version FOLDER MODULE: the version that the programs of a folder are built with.
version() { (cd "test/gateways/$1" && go list -m -f '{{.Version}}' "$2"); }
definitions() { # FOLDER: copies those of its modules
  local gateway=github.com/envoyproxy/gateway
  case $1 in
  kubernetes) copy inference-extension sigs.k8s.io/gateway-api-inference-extension@v1.5.0 'config/crd/bases/*.yaml' ;;
  istio) copy istio "istio.io/istio@$(version istio istio.io/istio)" 'manifests/charts/base/files/crd-all.gen.yaml' ;;
  envoygateway)
    copy envoy-gateway "$gateway@$(version envoygateway $gateway)" 'charts/gateway-helm/charts/crds/crds/generated/*.yaml'
    copy gateway-api "sigs.k8s.io/gateway-api@$(version envoygateway sigs.k8s.io/gateway-api)" 'config/crd/standard/*.yaml'
    ;;
  esac
}

for module in "$@"; do
  want=$(cat scripts/install-gateways.sh "test/gateways/$module"/go.{mod,sum} | sha256sum)
  [ "$(cat "$out/$module.version" 2>/dev/null)" = "$want" ] && continue
  echo "install-gateways: building $module (${SECONDS}s)" >&2
  (cd "test/gateways/$module" && CGO_ENABLED=0 go build -trimpath -ldflags=-s -o "$out/" tool)
  [ "$module" != kubernetes ] || mv "$out/server" "$out/etcd" # go build names it after its module
  definitions "$module"
  echo "$want" >"$out/$module.version"
done
