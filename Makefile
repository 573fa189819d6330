# The only door. `make help` lists what is behind it.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
RELEASE := target/release
SECONDS_PER_TARGET ?= 60
SEEDS ?= 500
BROKER ?= mosquitto
TRUST ?= suback observed
export SEEDS BROKER TRUST

.PHONY: help build demo demo-card test oracle own-stack mutations soak foreign check bench brokers schema loom fuzz sanitize deps install clean

help: ## Lists these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Builds the library and the programs, optimised, into target/release.
	$(CARGO) build --release --workspace

demo: ## Runs a broker with and without us side by side, measures, prints a table, cleans up.
	scripts/demo.sh

demo-card: ## The same with a card on AF_XDP in a network namespace of its own, its clients in another (as root).
	scripts/demo-card.sh

deps: ## Installs what the tests need (Debian packages as root; Python and Node clients into .cache).
	scripts/deps.sh

test: deps build ## Runs every test that fits 25 minutes on two cores.
	scripts/test.sh

soak: deps build loom fuzz sanitize foreign ## The long runs: model checking, fuzzing, sanitizer, foreign suites, and the tests with 1,000 faults, 10,000 random programs and 20,000 lives of a card.
	MQTTSHIM_TEST_LONG=1 MQTTSHIM_FAULTS=1000 MQTTSHIM_PROGRAMS=10000 MQTTSHIM_TRIES=10000 MQTTSHIM_LIVES=20000 scripts/test.sh

oracle: deps build ## Plays SEEDS random scenarios on BROKER alone and on us, for each TRUST, and compares what every client received.
	scripts/oracle.sh

own-stack: deps build ## What holds on the kernel's TCP/IP must on our own: clients, sessions, parity, SEEDS scenarios, Wireshark, floods (as root).
	scripts/own-stack.sh

mutations: deps build ## Breaks one rule of the card after the other, and sees whether the oracle notices.
	scripts/oracle-mutations.sh

foreign: build ## CPython's, tokio's and stress-ng's own tests, with and without the library, outcome by outcome.
	scripts/foreign.sh

check: ## Formatting, lints, docs, dependency audit, generated code current.
	scripts/check.sh

bench: deps build ## The benchmarks: fan-out over raw frames and over the kernel, echo through the broker, the cores.
	scripts/bench.sh

brokers: deps build ## Other brokers, redis and nginx on us: installs them, checks and measures each, prints tables.
	scripts/brokers.sh

schema: ## Generates the committed Cap'n Proto code again.
	$(CARGO) run -q -p mqttshim-schema --example generate

loom: ## Model-checks the session's two token protocols.
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 $(CARGO) test --release -p mqttshim-session --lib --target-dir target/loom

fuzz: ## Fuzzes every parser of foreign bytes, and sessions, SECONDS_PER_TARGET each (nightly toolchain, cargo-fuzz).
	scripts/fuzz.sh $(SECONDS_PER_TARGET)

sanitize: ## Runs the session's and the schema's tests under AddressSanitizer (nightly toolchain).
	scripts/sanitize.sh

install: build ## Installs under DESTDIR/PREFIX.
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(RELEASE)/dpu-server $(RELEASE)/mqttshim $(RELEASE)/mqttshim-agent $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(RELEASE)/libmqttshim.so $(DESTDIR)$(PREFIX)/lib
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(RELEASE)/mqttshim completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/mqttshim
	$(RELEASE)/dpu-server completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/dpu-server

clean: ## Removes what was built.
	$(CARGO) clean
