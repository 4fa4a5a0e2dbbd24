# `make help` lists the targets. Each one creates the virtual environment that it needs, with pinned versions.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TRAINS := $(VENV)/.trains
DEMOS  := .venv-spaces
OLDEST := .venv-oldest
CLIENTS := .venv-clients
EXTRAS := base recipes baselines data tune rouge trackio quantization explain spaces export publish sign

# uv installs the environments: it links a package that is installed already instead of unpacking it again. It does not read the
# settings of pip, and does not compile what it installs. Python compiles a file when it is imported, and stores the result, unless
# the environment forbids it.
UV_PIP := $(BIN)/uv pip install --quiet -c constraints.txt
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install quickstart test runs common examples job variants bands oldest spaces extras clients docs check format clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What training and pictures need.
$(TRAINS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hfattn needs Python 3.11 or newer; run make with PYTHON=python3.11")'
	@echo "Installing PyTorch, transformers and what training needs into $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(UV_PIP) --python $(VENV) -e '.[recipes]'
	@touch $@

$(INSTALLED): $(TRAINS)
	$(UV_PIP) --python $(VENV) -e '.[dev]'
	@touch $@

install: $(INSTALLED)  ## Create .venv and install hfattn with all extras, at pinned versions

# One more date for quickstart to translate: make quickstart TEXT="4 de julio de 1776"
export TEXT
quickstart: $(TRAINS)  ## Train a date translator (3 minutes with the installation), translate with it, and draw its attention
	@test ! -e runs/dates/results.json || echo "runs/dates is already trained; remove it to train again."
	test -e runs/dates/results.json || $(BIN)/hfattn train translation/dates --output_dir runs/dates --resume
	$(BIN)/hfattn translate runs/dates "April 22, 2019" "lunes, 22 de abril de 2019" "the 3rd of May, 1986" $${TEXT:+"$$TEXT"}
	$(BIN)/hfattn attend runs/dates "$${TEXT:-the 22nd of April, 2019}" --output runs/dates/attention.png
	$(BIN)/hfattn attend runs/dates "$${TEXT:-the 22nd of April, 2019}" --output runs/dates/attention.html

test: check  ## Lint, type-check and run the tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore-glob '*_common.py' \
	  -m "not runs and not demos and not examples and not variants"

runs: $(INSTALLED)  ## Run the recipes and other commands as a user does, and load what they publish without hfattn
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "runs and not demos and not examples and not variants"

common: $(INSTALLED)  ## Run the tests that transformers has for every model on the models of hfattn
	$(BIN)/pytest -n 2 --dist loadfile tests/test_*_common.py

examples: $(INSTALLED)  ## Run the code of the README and of the documentation, as printed
	$(BIN)/pytest -n 2 -m examples

job: $(INSTALLED)  ## Go from a CSV file to a private repository by the commands of docs/own_data.md, with their times
	$(BIN)/pytest -q -s -m examples tests/test_job.py

variants: $(INSTALLED)  ## Train the tiny variant of every recipe configuration, and check its score
	$(BIN)/pytest -n 2 --maxschedchunk 1 -m variants

bands: $(INSTALLED)  ## Train each tiny variant with five seeds, and write the band of its score
	$(BIN)/pytest -n 2 --maxschedchunk 1 -o timeout=0 --bands 5 tests/test_tiny_recipes.py

# The oldest transformers that pyproject.toml allows, with its older huggingface-hub; everything else as pinned.
$(OLDEST)/.installed: $(TRAINS)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	grep -v '^\(huggingface_hub\|transformers\)==' constraints.txt > $(OLDEST)/constraints.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST) -c $(OLDEST)/constraints.txt -e '.[recipes]' \
	  "transformers==$$(sed -n 's/.*"transformers>=\([0-9.]*\)".*/\1/p' pyproject.toml).0" parameterized pytest pytest-timeout pytest-xdist
	@touch $@

# The first two commands: a folder that the pinned transformers published is verified by the oldest.
oldest: $(INSTALLED) $(OLDEST)/.installed  ## Test models, recipes and publishing with the oldest supported transformers
	rm -rf build/published
	$(BIN)/hfattn train translation/dates --output_dir build/published --data.examples 1000 --data.evaluation_examples 50 \
	  --training.max_steps 20 --training.eval_steps 20 --training.save_steps 20
	$(OLDEST)/bin/hfattn verify build/published
	$(OLDEST)/bin/pytest -n 2 --dist loadfile -m "not demos and not examples and not variants" tests/test_char_rnn.py \
	  tests/test_data_sets.py tests/test_generation.py tests/test_hub_server.py tests/test_publishing.py \
	  tests/test_classification.py tests/test_token_classification.py tests/test_training.py \
	  tests/test_translation.py tests/test_vaswani.py \
	  --deselect tests/test_publishing.py::test_every_command_has_an_example_that_runs  # needs all extras

# Only what a Space on the Hub installs: its requirements, and the version of Gradio that its card names.
$(DEMOS)/.installed: $(TRAINS) $(wildcard spaces/*/requirements.txt)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DEMOS)
	$(BIN)/uv pip install --quiet --python $(DEMOS) $(addprefix -r ,$(wildcard spaces/*/requirements.txt)) \
	  "gradio==$$(sed -n 's/^gradio==//p' constraints.txt)"
	@touch $@

spaces: $(INSTALLED) $(DEMOS)/.installed  ## Build the demos, start each with only its requirements, and test them in a browser
	SPACES_PYTHON=$(CURDIR)/$(DEMOS)/bin/python $(BIN)/pytest -n 2 --dist loadfile -m demos --reruns 1 -rR

# Each extra in an environment of its own, two at a time.
extras: $(INSTALLED)  ## Install each extra from the built wheel, and run the commands that need it
	rm -rf build/extras
	$(BIN)/uv build --quiet --wheel --out-dir build/extras/wheel
	$(MAKE) --jobs=2 --output-sync=target $(EXTRAS:%=extra-%)
	rm -rf build/extras

extra-%: EXTRA = build/extras/$*
extra-%:
	@echo "== $*"
	$(BIN)/uv venv --quiet --python $(BIN)/python $(EXTRA)/environment
	$(UV_PIP) --python $(EXTRA)/environment "$$(echo build/extras/wheel/*.whl)$(if $(filter-out base,$*),[$*])"
	mkdir $(EXTRA)/runs
	PYTHONPATH=tests $(EXTRA)/environment/bin/python tests/extra_commands.py $* $(EXTRA)/runs
	rm -rf $(EXTRA)

# The tools of docs/clients.md at its versions. boto3, which bertviz asks for and does not use here, needs an older urllib3.
$(CLIENTS)/.installed: $(TRAINS) docs/clients.md
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CLIENTS)
	$(UV_PIP) --python $(CLIENTS) -e '.[recipes,export]' $$(sed -n 's/^pip install //p' docs/clients.md)
	$(BIN)/uv pip install --quiet --python $(CLIENTS) --no-deps $$(sed -n 's/^.*`pip install --no-deps \([^`]*\)`.*/\1/p' docs/clients.md)
	@touch $@

clients: $(CLIENTS)/.installed  ## Install the tools of docs/clients.md, and run every block of that page
	$(CLIENTS)/bin/python tests/page_blocks.py docs/clients.md

docs: $(INSTALLED)  ## Build the documentation into build/site/
	$(BIN)/mkdocs build --strict --quiet
	@echo "The documentation: build/site/index.html"

check: $(INSTALLED)  ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet --no-progress .github

format: $(INSTALLED)  ## Format the code and sort its imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove environments and caches, but not runs
	rm -rf $(VENV) $(DEMOS) $(OLDEST) $(CLIENTS) .cache .mypy_cache .pytest_cache .ruff_cache build dist
