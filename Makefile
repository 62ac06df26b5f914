# Everything a newcomer needs: `make demo` and `make test`. Both create .venv and install first: the
# demo the package alone, the tests what they need besides.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
STAMP  := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
STUDIES := $(addprefix benchmarks/,real_features.py rescue.py forecast.py rescue_time.py verdicts.py detectors.py \
  class_collapse.py mode_study.py regularisers.py memory.py suspects.py text_guard.py)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo check test test-all test-oldest test-callbacks kills browser lint bench studies docs format \
  release-check clean
.DEFAULT_GOAL := help

help:           ## this page
	@sed -n 's/^\([a-z-]*\): .*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "uncollapse needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $@

$(STAMP): $(CORE)
	$(INSTALL) -e ".[test]"
	@touch $@

demo: $(CORE)   ## see what the toolkit does, in about a minute
	$(BIN)/uncollapse demo --out out/demo

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

check: lint     ## after each change: lint, types, floors, and the tests without training, processes and browser
	$(PYTEST) --hypothesis-profile=check -m "not slow and not processes and not night"

test: lint browser ## lint, types, floors, doctests, tests, coverage
	$(PYTEST) -m "not night" --cov --cov-report=term

test-all: lint browser test-oldest kills ## what rarely breaks as well, with many examples: each night
	$(PYTEST) --hypothesis-profile=night

test-oldest:    ## the tests with the oldest versions that pyproject.toml allows, in an environment of their own
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet -c constraints-oldest.txt -e ".[digits,fast,frames,geometry,parquet,pml]" \
	  faiss-cpu pytest pytest-xdist hypothesis pyyaml
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest -n $(WORKERS) \
	  -m "not slow and not processes and not night" -W "ignore:TypedStorage is deprecated:UserWarning"  # of faiss 1.8 beside torch

test-callbacks: $(STAMP) ## callbacks for Lightning and Hugging Face, texts, loggers: the real packages
	$(INSTALL) -e ".[lightning,huggingface,wandb,mlflow]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs/test_examples.py tests/integrations/test_callbacks.py \
	  tests/integrations/test_sentence_loss.py tests/losses/test_nt_xent.py \
	  tests/integrations/test_loggers.py tests/training/test_log.py \
	  tests/backbones/test_sentences.py tests/backbones/test_real_sentences.py \
	  tests/cli/test_sentence_runs.py

kills: $(STAMP) ## 30 kills of runs, ranks and sweeps, 20 meetings in one folder (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python tools/kills.py

# Pages are tested in headless Chromium: installed where we may, else those tests are skipped.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq chromium >/dev/null 2>&1; } || \
	  echo "no chromium: the tests that open pages in a browser will be skipped"

lint: $(STAMP)  ## ruff, mypy --strict, import-linter, ceilings of every package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## speed and memory as ratios taken in one run (slow)
	@for f in $(filter-out $(STUDIES),$(wildcard benchmarks/[a-z]*.py)); do \
	  echo "== $$f"; $(BIN)/python $$f || exit 1; done

studies: $(STAMP) ## are forecast, rescue, verdicts and mode drift right? (hours; UNCOLLAPSE_DATA)
	@for f in $(STUDIES); do echo "== $$f"; $(BIN)/python $$f || exit 1; done

docs: $(STAMP)  ## build the documentation into site/
	$(INSTALL) -e ".[docs]"
	$(BIN)/mkdocs build --strict

release-check: $(CORE) ## build sdist and wheel, install the wheel elsewhere, run the demo and a smoke test
	$(INSTALL) -e ".[release]"
	$(BIN)/python tools/release_check.py

clean:          ## remove what the commands above made
	rm -rf $(VENV) $(VENV)-oldest .canonical site out dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
