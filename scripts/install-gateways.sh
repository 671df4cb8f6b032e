#!/usr/bin/env bash
# Builds the programs of test/gateways from Go modules into .cache/gateways: the API
# server of Kubernetes, etcd, Istio's control plane and Envoy Gateway. It copies the
# resource definitions that clusters would have from the same modules. The first time
# takes about 30 CPU minutes; later runs do nothing while the versions stay. The go.mod
# files in test/gateways have the versions.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/gateways
want=$(cat scripts/install-gateways.sh test/gateways/*/go.mod test/gateways/*/go.sum | sha256sum)
[ "$(cat "$out/version" 2>/dev/null)" = "$want" ] && exit 0
mkdir -p "$out"
for module in kubernetes istio envoygateway; do
  echo "install-gateways: building $module (${SECONDS}s)" >&2
  (cd "test/gateways/$module" && CGO_ENABLED=0 go build -trimpath -ldflags=-s -o "$out/" tool)
done
mv "$out/server" "$out/etcd" # go build names it after its module

# copy NAME MODULE FILES: resource definitions of a module.
copy() {
  mkdir -p "$out/crds/$1"
  dir=$(go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  # shellcheck disable=SC2086
  (cd "$dir" && install -m 644 $3 "$out/crds/$1/")
}
# version FOLDER MODULE: the version that the programs of a folder are built with.
version() { (cd "test/gateways/$1" && go list -m -f '{{.Version}}' "$2"); }
rm -rf "$out/crds"
gateway=github.com/envoyproxy/gateway
copy envoy-gateway "$gateway@$(version envoygateway $gateway)" 'charts/gateway-helm/charts/crds/crds/generated/*.yaml'
copy gateway-api "sigs.k8s.io/gateway-api@$(version envoygateway sigs.k8s.io/gateway-api)" 'config/crd/standard/*.yaml'
copy inference-extension sigs.k8s.io/gateway-api-inference-extension@v1.5.0 'config/crd/bases/*.yaml'
copy istio "istio.io/istio@$(version istio istio.io/istio)" 'manifests/charts/base/files/crd-all.gen.yaml'
echo "$want" >"$out/version"
