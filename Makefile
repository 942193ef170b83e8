# What a developer types. `make` alone lists it.
#
# Everything below needs Go; the tests' race detector needs a C compiler too. Servers are private ones (package
# internal/localservers): no target starts, stops or talks to a service of the system.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PROGRAMS := api worker sluice

# We stamp the version ourselves, so Go needn't ask git, which refuses a checkout that belongs to somebody else.
BUILD := -trimpath -buildvcs=false -ldflags "-s -w -X sluice/internal/process.Version=$(VERSION)"

# Packages tested at once. Each starts servers of its own: two fill a machine of two cores.
TEST_PARALLEL ?= 2
# Per package. The slowest takes two minutes on two cores, and up to five on a busy machine; a hang shall end, and tell where.
TEST_TIMEOUT ?= 20m
# More arguments for go test, such as -v or "-run='Sale|Order'".
TEST_ARGS ?=
# The module's packages, or some of them; of all of them only, the module in bench is tested too.
PACKAGES ?= ./...

# The race detector needs cgo and a C compiler.
RACE := $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v $$(go env CC) >/dev/null && echo -race)
GO_TEST = go test $(RACE) -count=1 -timeout=$(TEST_TIMEOUT) -p=$(TEST_PARALLEL) $(TEST_ARGS)

# golangci-lint, at the version that tools/go.mod pins. It is built once, which takes some minutes.
LINT = go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup build ## watch a whole flash sale, with a worker killed in the middle, unpaid orders sold again, and a proof at the end
	@bin/sluice demo $(ARGS)

.PHONY: dev
dev: setup build ## run private servers, API and worker in this terminal until ctrl-C
	@bin/sluice dev $(ARGS)

.PHONY: test
test: setup race-notice ## vet and every test, with the race detector, against real servers
	go vet $(PACKAGES)
	$(GO_TEST) $(PACKAGES)
ifeq ($(PACKAGES),./...)
	cd bench && go vet ./... && $(GO_TEST) ./...
	cd bench && go test -count=1 -timeout=$(TEST_TIMEOUT) $(TEST_ARGS) -run=TestNoGrossRegression .
endif

.PHONY: race-notice
race-notice:
ifeq ($(RACE),)
	@echo "test: no C compiler, so WITHOUT the race detector; install gcc or clang to have it" >&2
	@if [ -n "$$CI" ]; then echo "test: that is not enough for CI" >&2; exit 1; fi
endif

.PHONY: setup
setup: ## install Redis and Postgres where they are missing (their binaries; no service is started)
	@go run -buildvcs=false ./internal/localservers/install

.PHONY: setup-prometheus
setup-prometheus: ## install Prometheus and promtool (Debian, as root; 30 MB), for the tests of alerts; no service is started
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || \
		{ sh internal/localservers/install-apt.sh "" prometheus && \
		if command -v systemctl >/dev/null; then systemctl disable prometheus.service || :; fi; }

.PHONY: build
build: ## bin/api, bin/worker and bin/sluice
	@mkdir -p bin
	@test -x bin/sluice || echo "build: compiling (the first time takes a minute or two)"
	@CGO_ENABLED=0 go build $(BUILD) -o bin/ $(PROGRAMS:%=./cmd/%)

# Where install puts sluice. Without the right to write there: make install PREFIX=$HOME/.local
PREFIX ?= /usr/local

.PHONY: install
install: build ## put sluice on the PATH, into $(PREFIX)/bin; PREFIX=$HOME/.local without root
	@mkdir -p "$(DESTDIR)$(PREFIX)/bin" && install -m 0755 bin/sluice "$(DESTDIR)$(PREFIX)/bin/sluice" || \
		{ echo "install: $(DESTDIR)$(PREFIX)/bin can't be written to; try: make install PREFIX=\$$HOME/.local" >&2; exit 1; }
	@echo "install: $(DESTDIR)$(PREFIX)/bin/sluice"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; \
		*) echo "install: $(PREFIX)/bin is not on your PATH; add it: export PATH=\"$(PREFIX)/bin:\$$PATH\"" ;; esac

.PHONY: bench
bench: setup ## measure, as ratios against the bare thing; ARGS=-h lists what can be chosen
	@cd bench && go run -buildvcs=false . $(ARGS)

.PHONY: bench-rebuild
bench-rebuild: setup ## time the rebuild of a sale with 1,000,000 live orders, and clean restarts; ARGS="-orders 100000"
	@cd bench && go run -buildvcs=false ./rebuild $(ARGS)

.PHONY: bench-year
bench-year: setup ## a simulated year of daily sales with retention: sizes, plans, times; ARGS="-orders 100000 -buyers 1000"
	@cd bench && go run -buildvcs=false ./year $(ARGS)

.PHONY: bench-audit
bench-audit: setup ## time and memory of the audit of a big sale, and what it costs buyers; ARGS="-orders 10000000 -rounds 0"
	@cd bench && go run -buildvcs=false ./audit $(ARGS)

.PHONY: neighbours
neighbours: setup ## how long honest buyers wait while one client attacks; prints a table (5 minutes); ARGS="-limit off" compares
	@cd bench && go run -buildvcs=false ./neighbours $(ARGS)

# Of the long run: faults are injected for so many minutes. A seed makes the same plan of faults again. The topology is
# what the stores are: single, sentinel, cluster, replicated-postgres or citus.
CHAOS_MINUTES ?= 5
CHAOS_SEED ?= 0
TOPOLOGY ?= single

.PHONY: chaos
chaos: setup ## break everything during a flash sale and prove that nothing is lost; CHAOS_MINUTES=5 CHAOS_SEED=... TOPOLOGY=cluster
	@go build -buildvcs=false -o bin/chaos ./chaos/run
	@bin/chaos -minutes $(CHAOS_MINUTES) -seed $(CHAOS_SEED) -topology $(TOPOLOGY) $(ARGS)

.PHONY: receipt-exam
receipt-exam: setup ## each fail-over of Redis by itself: what became of the receipts that buyers had; half an hour
	@go build -buildvcs=false -o bin/chaos ./chaos/run
	@bin/chaos -exam -minutes 1 -seed $(CHAOS_SEED) $(ARGS)

.PHONY: chaos-defects
chaos-defects: setup ## break the product on purpose, one way at a time: the short chaos must catch it; ARGS="-only no-claim"
	@go build -buildvcs=false -o bin/chaos-defects ./chaos/defects
	@bin/chaos-defects $(ARGS)

.PHONY: refusals
refusals: setup ## have Redis refuse each command, key and user in turn, under load; prints a table (4 minutes)
	SLUICE_REFUSALS=all go test -count=1 -timeout=$(TEST_TIMEOUT) -v $(TEST_ARGS) ./chaos/refusals

.PHONY: clocks
clocks: setup ## set each process' and each store's clock an hour wrong for ten seconds; prints a table (4 minutes)
	SLUICE_CLOCKS=10s go test -count=1 -timeout=$(TEST_TIMEOUT) -v $(TEST_ARGS) ./chaos/clocks

.PHONY: lint
lint: vulnerabilities ## golangci-lint over both modules, and govulncheck
	$(LINT) run ./...
	cd bench && $(LINT) run ./...

# VULNDB is the database; file:///path for a copy. One that can't be reached is said, and is no reason to fail: whether code
# is well written does not depend on the network.
VULNDB ?= https://vuln.go.dev
VULNERABILITIES = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db=$(VULNDB) ./...

.PHONY: vulnerabilities
vulnerabilities: ## govulncheck: known vulnerabilities in what the programs call
	@case '$(VULNDB)' in \
	http*) curl -sfo /dev/null --max-time 10 '$(VULNDB)/index/db.json' || \
		{ echo 'vulnerabilities: $(VULNDB) can not be reached: NOTHING WAS CHECKED' >&2; exit 0; };; esac; \
	$(VULNERABILITIES)

.PHONY: fmt
fmt: ## format all Go files
	$(LINT) fmt ./...
	cd bench && $(LINT) fmt ./...

.PHONY: rooms
rooms: ## size, exports and arrows of every package; ARGS=-check prints what exceeds a limit
	@go run -buildvcs=false ./internal/rooms $(ARGS)

.PHONY: test-versions
test-versions: ## the tests against Redis 7.0 and 8.0, Valkey 8.1, Postgres 15 and 17, in Debian trees (as root; an hour)
	PACKAGES="$(PACKAGES)" tools/test-versions.sh

.PHONY: compose-test
compose-test: ## a sale through the compose stack, with a worker killed (needs a Docker engine)
	deploy/compose-test.sh $(ARGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
