# Every target does its own set-up. `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help

python := hack/python
pytest := $(python) -m pytest
# Tests mostly wait for real servers, which all workers share, so there may be more than cores.
parallel ?= -n 4
sources := crds operator sidecar spark cli hack tests examples

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14

.PHONY: install
install: ## make .venv with the project
	@hack/venv

.PHONY: demo
demo: ## a queue at work on this machine: retries, dead letters, a redrive
	@hack/venv
	@.venv/bin/nq run --once examples/orders/queue.yaml -- .venv/bin/python examples/orders/demo.py

.PHONY: lint
lint: ## style, types, import directions, generated files
	@hack/venv all
	.venv/bin/ruff format --check $(sources)
	.venv/bin/ruff check $(sources)
	.venv/bin/mypy $(sources)
	.venv/bin/lint-imports
	hack/generate --check

.PHONY: format
format: ## let ruff format and mend what it can
	@hack/venv all
	.venv/bin/ruff format $(sources)
	.venv/bin/ruff check --fix $(sources)

.PHONY: generate
generate: ## write the CRDs and the reference pages from the models
	hack/generate

.PHONY: lock
lock: ## write requirements.lock anew
	@hack/venv all
	hack/lock

.PHONY: test
test: lint ## everything that needs no pods, on real servers
	$(pytest) $(parallel) tests/unit tests/broker tests/control_plane tests/chart
	$(pytest) tests/spark

.PHONY: e2e
e2e: ## real pods on a real cluster
	$(pytest) tests/e2e

.PHONY: soak
soak: ## the full counts of the acceptance lists; figures go to docs/soak.md
	NQ_SCALE=full $(pytest) $(parallel) --timeout 3600 tests/unit tests/broker tests/control_plane tests/chart
	NQ_SCALE=full $(pytest) --timeout 3600 tests/e2e

.PHONY: bench
bench: ## benchmarks; not part of the tests
	@for bench in hack/bench/*.py; do echo "== $$bench"; $(python) "$$bench" || exit 1; done

.PHONY: docs
docs: generate ## write the reference pages and take the pictures
	$(python) hack/picture.py docs/pictures/demo.svg -- make demo
	hack/simulate
	NQ_PICTURES=$(CURDIR)/docs/pictures $(pytest) tests/e2e/test_chart_pods.py
