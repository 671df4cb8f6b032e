#!/usr/bin/env bash
# Builds what test/gateways runs from Go modules into .cache/gateways: Envoy
# Gateway, the API server of Kubernetes and etcd; beside them the resource
# definitions that clusters would have, from the modules that carry them. About
# 20 CPU minutes the first time; afterwards nothing is done while the versions
# stay. The versions of the programs are those of the modules in test/gateways.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/gateways
want=$(cat scripts/install-gateways.sh test/gateways/*/go.mod test/gateways/*/go.sum | sha256sum)
[ "$(cat "$out/version" 2>/dev/null)" = "$want" ] && exit 0
mkdir -p "$out"
for module in envoygateway kubernetes; do
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
rm -rf "$out/crds"
gateway=github.com/envoyproxy/gateway
copy envoy-gateway "$gateway@$(cd test/gateways/envoygateway && go list -m -f '{{.Version}}' $gateway)" 'charts/gateway-helm/charts/crds/crds/generated/*.yaml'
copy gateway-api "sigs.k8s.io/gateway-api@$(cd test/gateways/envoygateway && go list -m -f '{{.Version}}' sigs.k8s.io/gateway-api)" 'config/crd/standard/*.yaml'
copy inference-extension sigs.k8s.io/gateway-api-inference-extension@v1.5.0 'config/crd/bases/*.yaml'
copy istio istio.io/api@v1.31.1 'kubernetes/customresourcedefinitions.gen.yaml'
echo "$want" >"$out/version"
