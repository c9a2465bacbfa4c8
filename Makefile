# Needs Python 3.11 or newer with pip, and make. Everything is installed into .venv.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test test-slow docs bench assets clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv and install teccl with its development tools
	@:

# PyTorch's usual build brings gigabytes of CUDA libraries. Only the build for CPUs is taken, where
# pip can find it; without it the tests that need torch are skipped and name the command.
TORCH := torch==2.13.0+cpu
torch = if $(BIN)/python -m pip --version >/dev/null 2>&1; \
	then pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	$$pip install --quiet -c constraints.txt "$(TORCH)" 2>/dev/null || \
	echo "No $(TORCH) to be found; the tests that need torch are skipped (pip install $(TORCH))"

# Some distributions ship Python without ensurepip; then the pip of $(PYTHON) fills the environment.
$(STAMP): pyproject.toml constraints.txt
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
		found=$$($$python -c 'import platform; print(platform.python_version())' 2>/dev/null || echo missing); \
		$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "teccl needs Python 3.11 or newer, but $$python is $$found; name another with: make PYTHON=python3.11 setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip $(VENV)
	@echo "Installing teccl into $(VENV) (the first time takes a minute or two)"
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; \
		then pip="$(BIN)/python -m pip"; \
		else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
		$$pip install --quiet -c constraints.txt -e ".[dask,dev,docs,mpi,plot,ui]"
	@$(torch)
	@$(BIN)/python -m compileall -q src
	@touch $@

# Pages are tested in Debian's Chromium. Without it, and without root to install it, those tests are
# skipped and name the package.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ echo "Installing chromium"; apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1; }; } || \
		echo "No Chromium; the tests of pages are skipped (apt-get install chromium)"

demo: setup ## Solve and verify an AllGather on two NDv2 chassis; writes out/
	@mkdir -p out
	$(BIN)/teccl solve ndv2:chassis=2 allgather --size 1MB -o out/ndv2_allgather.json
	$(BIN)/teccl verify out/ndv2_allgather.json

test: setup browser ## Lint, type-check and run the quick tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: setup browser ## Run the tests with full counts
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

docs: setup browser ## Draw the pictures and build the documentation into site/
	$(BIN)/python docs/make_presets.py
	$(BIN)/python docs/make_pictures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup ## Measure start-up time
	$(BIN)/python benchmarks/startup.py

# The one part of the package that is built: the charts of reports, from packages on npm.
VENDOR := src/teccl/report/assets/vendor
assets: ## Rebuild the charting library that reports contain (needs npm)
	npm install --silent --no-save --no-audit --no-fund --prefix build/assets echarts@6.1.0 esbuild@0.28.2
	NODE_PATH=build/assets/node_modules build/assets/node_modules/.bin/esbuild $(VENDOR)/charts.js \
		--bundle --minify --format=iife --global-name=echarts --target=es2022 --legal-comments=none \
		--banner:js="/*! Apache ECharts 6.1.0, Apache License 2.0, The Apache Software Foundation */" \
		--log-level=warning --outfile=$(VENDOR)/echarts.js

clean: ## Remove outputs and caches, keep .venv
	rm -rf out site dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv too
	rm -rf $(VENV)
