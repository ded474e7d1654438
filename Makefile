# From a fresh clone: `make demo` shows the main job, `make test` passes the tests. Both set up .venv first. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m tests.run
READY := .venv/.ready
LIGHT := .venv/.light
# All tests of these rooms start processes, or are slow for another reason: the inner loop does not even collect them. Those of the
# agent's looks and waits read a whole process, which takes several times as long in one that has collected other tests, too. Those of
# HTTP import all servers and frameworks.
SLOW_ROOMS := analysis apps archive bench checkpoints client/look client/waits cluster collector commands helm http live mutants service sidecar simulator spark transparency
PROTOS := protos/stilltrue/v1
PROTO_OUT := clients/python
CPUS ?= 2
# The tests that start processes wait half of the time, and those that run whole programs longer.
WORKERS ?= 5
WORKERS_PROGRAMS ?= 6
WORKERS_QUICK ?= 3
IN_GROUPS := --dist loadgroup --no-loadscope-reorder --max-worker-restart 2
# Each worker gets its next test when it has begun the one before, so those that come first begin first.
ONE_BY_ONE := --dist load --maxschedchunk 1
SOAK_SECONDS ?= 600
PROVE_SEEDS ?= 0..100000
CHAOS_SECONDS ?= 600
FUZZ_SECONDS ?= 60
ROLLING_MINUTES ?= 60

# Some machines forbid Python to keep compiled modules: each of hundreds of processes that the tests start would compile all of its own.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: pictures help demo test longer longer-ci field field-ci check setup lint types floors proto proto-fresh proto-check truth truth-ci matrix apps apps-ci mutants mutants-ci bench soak rolling prove chaos fuzz release cluster locks vulnerabilities site clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: $(if $(wildcard $(READY)),$(READY),$(LIGHT)) ## real gRPC processes that deadlock, and the verdict (under a minute, and 350 MB)
	@$(BIN)/stilltrue demo

# Files without a quick test, which each worker would collect all the same, with the libraries of a dozen databases.
NONE_QUICK := tests/apps tests/cluster tests/field/test_field.py tests/field/test_sessions.py
QUICK := not soak and not longer and not field and not cluster and not apps and not truth and not mutants

# The agent's tests run first and by themselves, room by room: a look reads all objects of its process, and takes several times as long
# in one that has collected all tests, or has imported the libraries of a dozen pools.
POOLS := tests/client/waits/test_pools.py
ROOMS := "tests/client/look" "tests/client/waits --ignore $(POOLS)" \
	"tests/client $(patsubst %,--ignore %,tests/client/look $(filter-out $(POOLS),$(wildcard tests/client/waits/test_*.py tests/client/waits/*/)))" "tests $(patsubst %,--ignore %,tests/client $(NONE_QUICK))"
test: setup ## set up (1.4 GB), and run the tests, five at a time (ten minutes on two cores; on four: make test WORKERS=10)
	@failed=0; for tests in $(ROOMS); do \
		$(PYTEST) $$tests -m "$(QUICK)" -n $(WORKERS) $(IN_GROUPS) --benchmark-disable || { code=$$?; [ $$code = 1 ] || exit $$code; failed=1; }; \
	done; exit $$failed

# The files with such tests alone: each worker would spend a minute on collecting all others.
LONGER = $(shell grep -rlF mark.longer --include='test_*.py' tests)

longer: setup ## the tests that take longest: several seconds each
	$(PYTEST) $(LONGER) -m longer -n $(WORKERS) $(IN_GROUPS) --benchmark-disable

longer-ci: setup ## the longer tests that a landing runs
	$(PYTEST) $(LONGER) -m "longer and not not_in_ci" -n $(WORKERS) $(IN_GROUPS) --benchmark-disable

field: setup ## published deadlocks, with the real libraries and servers: those in docs/field.md (about two minutes)
	$(PYTEST) tests/field -m field -n $(WORKERS_PROGRAMS) --max-worker-restart 2 --benchmark-disable

field-ci: setup ## the published deadlocks that a landing runs (tests/field/landing.py)
	$(PYTEST) tests/field -m "field and not not_in_ci" -n $(WORKERS_PROGRAMS) --max-worker-restart 2 --benchmark-disable

check: lint types floors ## the inner loop, under a minute: lint, types, floors, and the quick tests that start no process
	$(PYTEST) tests $(SLOW_ROOMS:%=--ignore tests/%) $(NONE_QUICK:%=--ignore %) -q -m "not slow and $(QUICK)" -n $(WORKERS_QUICK) $(IN_GROUPS) --benchmark-disable

setup: $(READY) ## create .venv with both packages and the tools

# The steps of the set-up run in process groups of their own, so that Ctrl-C prints one line, not a traceback of each program. A second
# signal (make passes on its own) is handled, not ignored: bash warns of one that is pending when its trap is taken away.
INTERRUPTIBLE = stop() { trap : INT TERM; kill -- -$${!:-} 2>/dev/null || true; until wait 2>/dev/null; do :; done; \
	echo "the set-up was interrupted: run 'make $(MAKECMDGOALS)' again" >&2; exit 130; }; \
	trap stop INT TERM; run() { set -m; "$$@" & set +m; wait $$!; }

VENV = if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer with venv is needed and was not found: install it (Debian: apt-get install python3 python3-venv), or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; fi; \
	version=$$($(PYTHON) --version); echo "Setting up $(1) with $$version ..."; $(INTERRUPTIBLE); \
	run $(PYTHON) -m venv --clear $(1)

# The agent is found along sys.path: a clone is called stilltrue, and a program in the folder that contains it would import that instead.
ON_PATH = editable_mode=compat

$(LIGHT): pyproject.toml clients/python/pyproject.toml constraints.txt detector/release/build_backend.py
	@$(call VENV,.venv); \
	run $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt \
		--config-settings $(ON_PATH) -e clients/python && \
	run $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt -e .
	@touch $@

$(READY): pyproject.toml clients/python/pyproject.toml constraints.txt detector/release/build_backend.py
	@$(call VENV,.venv); \
	run $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt uv; \
	run $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt --config-settings-package stilltrue:$(ON_PATH) \
		-e clients/python -e '.[test]'
	@touch $(LIGHT) $@

lint: setup ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict on everything
	$(BIN)/mypy

floors: setup ## the import contracts: which layer may import which (import-linter)
	$(BIN)/lint-imports

.proto-venv/.ready: protos/requirements.txt
	@$(if $(PYTHON),,$(error Python 3.11 or newer is needed))$(PYTHON) -m venv --clear .proto-venv
	@.proto-venv/bin/python -m pip install -q --disable-pip-version-check -r protos/requirements.txt
	@touch $@

proto: .proto-venv/.ready ## generate clients/python/stilltrue/v1 from protos/ with an old, pinned grpcio-tools
	.proto-venv/bin/python -m grpc_tools.protoc -I protos --python_out=$(PROTO_OUT) --grpc_python_out=$(PROTO_OUT) \
		--pyi_out=$(PROTO_OUT) $(PROTOS)/*.proto

proto-fresh: .proto-venv/.ready ## fail if the committed code is not what protos/ generates
	@rm -rf build/proto && mkdir -p build/proto
	@.proto-venv/bin/python -m grpc_tools.protoc -I protos --python_out=build/proto --grpc_python_out=build/proto \
		--pyi_out=build/proto $(PROTOS)/*.proto
	@diff -r -x __pycache__ -x __init__.py build/proto/stilltrue/v1 $(PROTO_OUT)/stilltrue/v1 \
		|| { echo "the generated code is stale: run 'make proto' and commit" >&2; exit 1; }

proto-check: ## buf: lint (STANDARD), and no breaking change since protos/baseline.binpb (needs npx)
	npx --yes @bufbuild/buf@$(BUF_VERSION) lint protos
	npx --yes @bufbuild/buf@$(BUF_VERSION) breaking protos --against protos/baseline.binpb
BUF_VERSION := 1.75.0

truth: setup ## ordinary programs, some of which deadlock, against a real detector (../shared/cases/truth; about ten minutes)
	$(PYTEST) tests/truth -m truth -n $(CPUS) --benchmark-disable

truth-ci: setup ## the same without the slowest: those that a landing runs
	$(PYTEST) tests/truth -m "truth and not not_in_ci" -n $(WORKERS_PROGRAMS) --dist load --benchmark-disable

mutants: setup ## break the shipped code in one place at a time: the test named for it must fail (make test has the quick ones)
	$(PYTEST) tests/mutants -v -n $(WORKERS) $(ONE_BY_ONE) --benchmark-disable

mutants-ci: setup ## the mutants that make test leaves out
	$(PYTEST) tests/mutants -m mutants -v -n $(WORKERS) $(ONE_BY_ONE) --benchmark-disable

MATRICES := build/matrix/oldest build/matrix/newest
build/matrix/oldest/.ready: OF_MATRIX := grpcio==1.62.3 protobuf==4.21.6
build/matrix/%/.ready: setup clients/python/pyproject.toml
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(@D)
	@$(BIN)/uv pip install -q --python $(@D)/bin/python -e clients/python $(OF_MATRIX) opentelemetry-instrumentation-grpc opentelemetry-sdk \
		sentry-sdk py-grpc-prometheus google-api-core 'setuptools<80'
	@touch $@

matrix: $(MATRICES:%=%/.ready) ## every kind of call and server, with and without the agent, beside other instrumentation, on the oldest and newest grpcio; writes docs/transparency.md
	build/matrix/newest/bin/python -m tests.transparency.matrix --processes $(CPUS) $(MATRICES:%=--python %/bin/python)

apps: setup ## programs from the package index, with and without `stilltrue run`: same results, and all join (four minutes; one once they are installed)
	$(BIN)/python -m tests.apps.run

apps-ci: setup ## those that CI runs: FastAPI, Google Pub/Sub, Flower (under two minutes, most of it installing)
	$(PYTEST) tests/apps -m apps -n $(CPUS) --max-worker-restart 0 --benchmark-disable

bench: setup ## the benchmarks (they print times and assert nothing about them)
	STILLTRUE_BENCH=1 $(PYTEST) tests/bench -s

rolling: setup ## Flower and FastAPI with the agent while their processes are restarted one after another: no TRUE (ROLLING_MINUTES=60)
	$(BIN)/python -m tests.apps.rolling --minutes $(ROLLING_MINUTES)

soak: setup ## the demo `healthy`, and every kind of wait, under load: no false TRUE (SOAK_SECONDS=600 each); then the sidecar: 100,000 calls, 5,000 worlds
	$(BIN)/stilltrue demo healthy --seconds $(SOAK_SECONDS) --period-seconds 0.1
	$(BIN)/python -m tests.chaos.waits.soak --seconds $(SOAK_SECONDS)
	$(PYTEST) tests/sidecar -m soak -q --timeout 3600

chaos: setup ## real processes under seeded faults and hostile outsiders, checked by an oracle (CHAOS_SECONDS=600; SEED=N repeats a run)
	$(BIN)/python -m tests.chaos.nemesis --seconds $(CHAOS_SECONDS) $(if $(SEED),--seed $(SEED))

fuzz: setup ## all readers of outside input, guided by coverage (FUZZ_SECONDS=60 each; installs atheris)
	$(BIN)/uv pip install -q --python $(BIN)/python atheris
	$(BIN)/python -m tests.fuzz.long --seconds $(FUZZ_SECONDS)

prove: setup ## seeded worlds, checked by an oracle (PROVE_SEEDS=0..100000)
	$(BIN)/stilltrue simulate --seeds $(PROVE_SEEDS)

build/release-tools/.ready:
	@$(call VENV,$(@D)); run $(@D)/bin/python -m pip install -q --disable-pip-version-check uv
	@touch $@

release: build/release-tools/.ready ## everything to be published, reproducibly: wheels, source archives, image context, chart, checksums, into dist/
	@rm -rf dist
	@$(<D)/bin/python -m detector.release.publish dist

cluster: setup ## the chart in a real API server: installed, upgraded, injecting (builds Kubernetes the first time, ten minutes; as root)
	helm/tools/install
	helm/tools/cluster
	$(PYTEST) tests/cluster -m cluster --benchmark-disable

locks: setup ## write helm/image/requirements*.txt: the images' requirements with hashes, at the versions of constraints.txt
	@$(BIN)/python -m detector.release.lock_files

vulnerabilities: setup ## list the vulnerabilities that the package index reports for the images' packages (skipped if it reports none at all)
	@$(BIN)/python -m detector.release.vulnerabilities

build/site-tools/.ready: setup clients/python/pyproject.toml pyproject.toml
	@[ -e $@ ] || { echo "Setting up build/site-tools ..."; $(BIN)/uv venv -q --clear --python $(BIN)/python build/site-tools && $(BIN)/uv pip install -q \
		--python build/site-tools/bin/python -c constraints.txt -e clients/python -e . mkdocs-material==9.8.1; }
	@touch $@

pictures: setup ## take the screenshots of the docs in a real browser; writes docs/images
	$(BIN)/python -m tests.service.pictures docs/images

site: build/site-tools/.ready ## the documentation as a site, into build/site (three minutes the first time); every warning is an error
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build --strict --quiet && echo "build/site/index.html; with a search: python3 -m http.server -b 127.0.0.1 -d build/site"

clean: ## remove what was made here
	rm -rf .venv .proto-venv build dist stilltrue-data stilltrue-demo
