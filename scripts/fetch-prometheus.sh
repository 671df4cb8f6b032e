#!/usr/bin/env bash
# Unpacks Debian's Prometheus and promtool into .cache/prometheus, without installing them: tests of examples/monitoring run them.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$PWD/.cache/prometheus
[ -x "$dir/usr/bin/prometheus" ] && [ -x "$dir/usr/bin/promtool" ] && exit 0
command -v apt-get >/dev/null || { echo "fetch-prometheus: apt-get is missing; put prometheus and promtool into $dir/usr/bin" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; } ||
  { echo "fetch-prometheus: apt-get could not download prometheus" >&2; exit 1; }
rm -rf "$dir"
dpkg -x prometheus_*.deb "$dir"
