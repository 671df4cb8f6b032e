# warmroute. `make help` lists the targets; `make demo` and `make test` need nothing but Go, Python 3 and npm.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
VLLM := 0.32.0 0.27.0 0.21.0 0.33.0-python
SGLANG := sglang-0.5.23 sglang-0.5.21-publisher
FUZZTIME ?= 30s
IMAGE ?= warmroute:0.1.0

# The race detector would let every process of a test sleep for 1 s at its end.
export GORACE := atexit_sleep_ms=20

.PHONY: help setup build test test-fresh test-long test-e2e test-kube test-vllm test-live test-live-pd test-reference test-agents test-schedulers test-failopen test-faults test-gateways test-hostile test-dashboard test-tracing mutation fuzz lint vuln bench bench-index bench-live bench-policy bench-tokens demo demo-split docs proto image release test-release test-chart

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what tests and the demo need: Envoy, tokenizers, templates, Python oracles
	@scripts/setup.sh

build: ## compile the binaries into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
	CGO_ENABLED=0 go -C lab build -trimpath -o ../bin/ ./cmd/lab ./cmd/vllmsim

test: ## unit, golden, race and end-to-end tests with real Envoy; installs what they need
	@scripts/test.sh

test-fresh: ## every import with an empty module cache, build and the tests that call go with an empty home folder
	@scripts/test-fresh.sh

test-long: setup ## the suite's packages once more: without the race detector where make test has it, and commands with it
	@scripts/test.sh long

test-e2e: setup ## only the end-to-end tests: protocol torture, gateways, failures, each through real Envoy, four at a time
	cd test && go test -race -count=1 -timeout 20m -parallel 4 ./e2e

test-kube: ## the Kubernetes side (build tag kube): fake client, stand-in API server, the whole router
	go vet -tags kube ./internal/kube ./cmd/extproc
	go test -tags kube -race -timeout 10m ./internal/kube
	go test -tags kube -race -timeout 10m -run 'Pool|Scripts/kubernetes' ./cmd/extproc

test-agents: setup ## cells of lab agents with vLLM's own scheduler in process, against the simulator's (15 CPU minutes, on a machine of its own)
	scripts/install-vllm.sh 0.32.0 0.33.0-python
	cd test && go test -tags vllm -count=1 -timeout 60m -run TestAgents -v ./vllm

test-schedulers: setup ## every lookup of vLLM's own schedulers against the prediction, of five random seeds (test-reference: one seed)
	scripts/install-vllm.sh $(VLLM)
	cd test && go test -tags vllm -count=1 -timeout 60m -run TestScheduler -v ./vllm -scheduler.seed=0 -scheduler.seeds=5
	scripts/foreseen.sh

test-vllm: test-live test-reference ## both of the following: everything on real vLLM (CPU build, tiny models)

test-live: setup ## real vLLM replicas behind real Envoy: 0.32 dense (also prefill and decode apart, over NIXL) and hybrid, 0.27, 0.21 (about 14 minutes)
	scripts/install-vllm.sh $(VLLM) 0.32.0-nixl
	cd test && go test -tags vllm -count=1 -timeout 60m -skip 'Scheduler|Coded|Agents' -v ./vllm

test-live-pd: setup ## of these, three real vLLM 0.32 that hand KV to each other over NIXL, one also behind llm-d's sidecar (about 7 minutes, the first time 3 CPU minutes more to build it)
	scripts/install-vllm.sh 0.32.0 0.32.0-nixl
	scripts/install-gateways.sh llmd
	cd test && go test -tags vllm -count=1 -timeout 30m -run 'Live/0.32.0_qwen3$$/apart' -v ./vllm

test-reference: setup ## vLLM's own schedulers of four releases and its renderers, called in process, SGLang's own caches behind Envoy, more templates beside Jinja2 and texts beside tokenizers (about 5 minutes)
	scripts/install-vllm.sh $(VLLM) $(SGLANG)
	cd test && go test -tags vllm -count=1 -timeout 60m -parallel 2 -run 'Scheduler|Coded' -v ./vllm
	cd test && go test -tags vllm -count=1 -timeout 60m -v ./sglang
	go -C render test -tags vllm -count=1 -timeout 60m -run AgainstVLLM -v .
	go -C render test -count=1 -timeout 60m -run Oracle -v ./internal/jinja -oracle.snippets=1000 -oracle.conversations=1000
	WARMROUTE_FUZZ_STRINGS=2000 go -C render test -count=1 -timeout 60m -run Differential -v ./internal/tokenizer

test-faults: setup ## the long form of the index's fault storms, and routers killed, frozen and cut off from each other (about 15 minutes, on a machine of its own)
	cd test && go test -count=1 -timeout 30m -run Storm -v ./faults -storm=long
	cd test && go test -count=1 -timeout 10m -run Routers -v ./failopen -long

test-gateways: setup ## the examples for clusters: real Istio, Envoy Gateway, Kubernetes API (as root; about 9 minutes, the first time 30 CPU minutes more to build them)
	scripts/install-gateways.sh kubernetes istio envoygateway
	for module in . lab test test/chart; do go -C $$module mod download || exit 1; done # the tests have no network
	cd test && go test -tags gateways -count=1 -timeout 30m -v ./gateways

test-failopen: setup ## everything around Envoy breaks under load, in every body mode, and behind xDS with one model and three: what fails (6 minutes)
	cd test && go test -count=1 -timeout 20m -skip Routers -v ./failopen -long

test-hostile: setup ## attacks of clients, replicas, models and neighbours on the router behind real Envoy: each costs at most so many times an ordinary request (about 5 minutes)
	cd test && go test -count=1 -timeout 20m -v ./hostile

test-dashboard: ## the operator's page in real Chromium (its pictures: cd test/dashboard && go test -run Pictures -pictures .)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || { echo "chromium is missing; install it and run again" >&2; exit 1; }
	cd test/dashboard && go test -count=1 -timeout 10m .

mutation: ## what a package's tests do not notice (PKG=./internal/load; TESTS=./internal/load,./internal/decision: whose tests are run; MODULE=render: the package's module)
	@go -C lab build -o ../bin/ ./mutation
	cd $(or $(MODULE),.) && $(CURDIR)/bin/mutation -tests "$(TESTS)" $(PKG)

test-tracing: setup ## traces, received by the OpenTelemetry collector's own receiver (which is built first: a minute)
	cd test/tracing && go test -count=1 -timeout 10m .

fuzz: ## every fuzz target for FUZZTIME (default 30s)
	@scripts/fuzz.sh $(FUZZTIME)

lint: ## golangci-lint, formatting, tidy go.mod files (nested modules too), the workflow of GitHub
	@for module in . render lab test; do (cd $$module && go mod tidy -diff) || exit 1; done
	@for module in test/dashboard test/tracing; do (cd $$module && go mod tidy -diff) || exit 1; done # they follow this module's dependencies
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')) && [ -z "$$unformatted" ] || { echo "not gofmt-ed: $$unformatted" >&2; exit 1; }
	@GOBIN=$(CURDIR)/.cache/bin go install $(GOLANGCI)
	@for module in . render lab test; do (cd $$module && $(CURDIR)/.cache/bin/golangci-lint run ./...) || exit 1; done
	$(CURDIR)/.cache/bin/golangci-lint run --build-tags kube ./internal/kube ./cmd/extproc
	go vet -tags noembed ./internal/peers/link ./cmd/extproc
	go run $(ACTIONLINT) .github/workflows/*.yml

vuln: ## known vulnerabilities in what we link
	@scripts/vuln.sh

bench: ## the cost of the filter beside a no-op filter
	@scripts/bench-extproc.sh

bench-index: ## the index beside the fastest rival (TRACE=path of a Mooncake trace, else a synthetic stream; QUICK=1: ten seconds)
	@QUICK="$(QUICK)" scripts/bench-index.sh "$(TRACE)"

bench-policy: ## routing policies on traces through the simulator (TRACES=paths, else a synthetic trace; ROUTERS=2,4,8: several routers beside one; ENGINE=gemma3 or qwen3-next: replicas with hybrid caches; GOODPUT=1: prompts computed on other replicas; SOURCES=events,history,text: only caches known from events, and from what was sent by its token ids or its text)
	@ROUTERS=$(ROUTERS) ENGINE=$(ENGINE) GOODPUT=$(GOODPUT) SOURCES=$(SOURCES) scripts/bench-policy.sh $(TRACES)

bench-live: setup ## routing policies in time, through real Envoy to four simulated replicas, and what holding sessions gains (8 minutes on a machine with nothing else to do)
	@scripts/bench-live.sh

bench-tokens: setup ## tokenizing and rendering beside the Rust-backed Python libraries
	@scripts/bench-tokens.sh

demo: ## plain balancing against warmroute on four simulated replicas behind real Envoy
	@mkdir -p bin && rm -f bin/demo-trace.jsonl
	@go -C lab run ./cmd/demo -trace $(CURDIR)/bin/demo-trace.jsonl

demo-split: ## prompts computed where they are answered, and on another replica where that pays: long new prompts on four simulated replicas behind real Envoy
	@go -C lab run ./cmd/demo -split

docs: ## rewrite the generated documentation
	go generate ./...
	go -C lab generate ./...
	go -C test/chart generate ./...

proto: ## regenerate the contracts of the index and between routers
	@scripts/proto.sh

image: ## the container image, as the examples for clusters name it (IMAGE=registry/name:tag, GO_IMAGE=golang:1.26@sha256:...)
	docker build $(if $(GO_IMAGE),--build-arg GO_IMAGE=$(GO_IMAGE)) -t $(IMAGE) .

release: ## what is published, into dist/: binaries for linux amd64 and arm64, the image, a bill of materials, checksums (SNAPSHOT=1: also of changes that no version has)
	cd release && go run . -out ../dist $(if $(SNAPSHOT),-snapshot)

test-release: test-chart ## the last commit's release: built twice with equal bytes, the image run by runc (5 minutes), and the chart
	@command -v runc >/dev/null || { apt-get update -qq && apt-get install -y -qq runc >/dev/null; } || { echo "runc is missing; install it and run again" >&2; exit 1; }
	cd release && go test -count=1 -timeout 30m .

test-chart: ## the Helm chart: linted, rendered, every object and the router's configuration checked strictly
	cd test/chart && go test -count=1 -timeout 10m .
