# Every target works on a fresh clone: it needs Python 3.10 to 3.13, make and a package index, nothing else.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
  $$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/installed
INSTALLED_CLI := .venv/installed-cli
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The extras tried alone. `timm` and `bench` bring torchvision, whose builds must fit torch's; `dev` is this environment.
ALONE := cli tables ray sklearn accelerate lightning transformers

.PHONY: demo test test-all test-hostile test-anywhere test-lowest check docs results package bench format clean

demo: $(INSTALLED_CLI)  ## train on digits with wrong labels, about a minute
	$(BIN)/deepbilevel demo

test: $(INSTALLED)  ## the quick tests, on all cores: minutes
	$(BIN)/pytest -n auto -m 'not slow'

test-all: $(INSTALLED)  ## every test, slow ones too, as in CI: a quarter of an hour on two cores
	$(BIN)/pytest -n auto

test-hostile: $(INSTALLED)  ## forged and damaged files, the long fuzzers too, on one core: minutes
	$(BIN)/pytest tests/hostile

test-anywhere: $(INSTALLED)  ## every test, as three other machines round: half an hour
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/pytest -n auto
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/pytest -n auto
	OMP_WAIT_POLICY=PASSIVE DEEPBILEVEL_TEST_THREADS=2 DEEPBILEVEL_TEST_SEED=1 $(BIN)/pytest -n auto

LOWEST := .venv/lowest/bin/python
test-lowest:  ## the library and the command with the oldest versions pyproject.toml admits; Python 3.10 or 3.11
	@# With the oldest Python too, if it is there.
	$$(python3.10 -c '' 2>/dev/null && echo python3.10 || echo $(PYTHON)) -m venv .venv/lowest
	@# The oldest typer warns with newer releases of click, which users do not see.
	$(LOWEST) -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[cli]' 'click<8.3' pytest pytest-xdist hypothesis
	$(LOWEST) -m pytest -n auto -m 'not slow' src/deepbilevel $(addprefix tests/,rules sampling one_pass audit distributed) \
	  tests/test_*bilevel*.py tests/test_gradients.py tests/test_guards.py tests/test_loop_contract.py tests/test_mixed_precision.py \
	  tests/cli/test_help.py tests/cli/test_train_command.py \
  --ignore src/deepbilevel/integrations --ignore tests/distributed/test_sharded.py \
  --ignore tests/distributed/test_audited_runs.py --ignore tests/distributed/test_training_commands.py
	@# Left out: trainers of others, sharded parameters (torch 2.6), and two files that play torchrun as later versions have it.

check: $(INSTALLED) docs  ## style, types, the layers of the house, and the site without a broken link
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

docs: $(INSTALLED)  ## the documentation site, in site/
	$(BIN)/sphinx-build -b html -q -W --keep-going docs site

results: $(INSTALLED)  ## the tables and pictures of results in the documents, from the committed records
	$(BIN)/python -m benchmarks.tables

package: $(INSTALLED)  ## wheel and source archive, in dist/, tried in empty environments: alone, and with each extra alone
	rm -rf dist .venv/package .venv/extra
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m venv .venv/package
	.venv/package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	.venv/package/bin/python -I tests/smoke.py
	@# A copy saves the second torch; its python finds the packages beside itself.
	set -e; for extra in $(ALONE); do \
	  rm -rf .venv/extra; cp -R .venv/package .venv/extra; \
	  .venv/extra/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(echo dist/*.whl)[$$extra]"; \
	  .venv/extra/bin/python -m pip check; \
	  .venv/extra/bin/python -I tests/smoke.py $$extra; \
	done
	rm -rf .venv/extra

bench: $(INSTALLED)  ## how fast, side by side with what it replaces, a quarter of an hour on a quiet machine
	$(INSTALL) -e '.[dev,bench]' || echo "not all packages to compare with could be installed; they are reported as failed"
	@# One of them asks for torchvision and never imports it; beside some builds of torch it breaks whoever does.
	$(BIN)/python -m pip uninstall --quiet --yes torchvision
	$(BIN)/python -m benchmarks.cost --json bench.json

format: $(INSTALLED)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and all caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache site dist

# `demo` needs the command only; Ray and a browser's driver, which the tests need, would take minutes to install.
$(INSTALLED_CLI): EXTRA := cli
$(INSTALLED): EXTRA := dev

$(INSTALLED) $(INSTALLED_CLI): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.10 to 3.13 is needed; set it with: make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e '.[$(EXTRA)]'
	@touch $(INSTALLED_CLI) $@
