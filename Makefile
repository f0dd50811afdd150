# Everything runs inside .venv, which `make setup` builds from constraints.txt. Another interpreter: make PYTHON=python3.12 setup
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
LOG := $(VENV)/pip.log
# Wheels only: building from source needs what a fresh machine may lack. Python compiles what it imports: all of it takes minutes.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --only-binary=:all: --no-compile -c constraints.txt
# Of what pip says, what came over the network: lines such as "Downloading x-1.0-py3-none-any.whl (1.2 MB)".
SUM := /^ *Downloading .*\([0-9.]+ [kMG]?B(ytes)?\)/ { gsub(/[()]/, ""); size = $$(NF - 1); \
  bytes += size * ($$NF == "GB" ? 1e9 : $$NF == "MB" ? 1e6 : $$NF == "kB" ? 1e3 : 1) } \
  END { printf "setup: done in %d s; %.0f MB downloaded; $(VENV) holds %.1f GB\n", seconds, bytes / 1e6, kilobytes * 1024 / 1e9 }
# As on most laptops: instructions beyond AVX2 are hidden from torch and oneDNN.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2

# Two workers. A file stays on one of them: what its fixtures train is then trained once.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-images test test-all test-avx2 test-plain test-library test-scale check docs bench bench-all nightly clean

help: ## list what make can do
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## build .venv with the pinned dependencies (quick when it is up to date)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "chainrule: Python 3.11 or newer is needed; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -n 1)"; \
	  echo "           Name another one: make PYTHON=python3.12 $(or $(MAKECMDGOALS),setup)"; exit 1; } >&2
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); }
	@echo "setup: installing the pinned dependencies into $(VENV); the first time takes a few minutes"
	@began=$$(date +%s); \
	  $(PIP) pip >$(LOG) && \
	  $(PIP) hatchling editables >>$(LOG) && \
	  $(PIP) --no-build-isolation -e '.[all,dev,docs]' >>$(LOG) && \
	  awk -v seconds=$$(($$(date +%s) - began)) -v kilobytes=$$(du -sk $(VENV) | cut -f 1) '$(SUM)' $(LOG)
	@touch $@

demo: setup ## train on the text built into Python for about 100 s; compare with xz and bzip2; write a page
	$(BIN)/python examples/demo.py

demo-images: setup ## train on scikit-learn's digits for a minute, draw new ones beside real ones
	$(BIN)/python examples/images.py

test: setup ## tests and doctests, but for the slow ones; which took longest
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not (slow or scale)" --durations=25 --durations-min=4

test-all: setup ## every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) --durations=25 --durations-min=4

test-scale: setup ## tests of Ray and of a server of S3, with the extra scale, which this installs; those of Ray share a cluster
	$(PIP) --no-build-isolation -e '.[scale,nightly]' >>$(LOG)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m scale tests/scale --durations=5

# What can take another path without AVX-512: products in bfloat16 or by oneDNN, compiled loops, attention and the numerics of training.
# Tests of masks, counts, words and combinations of layers are the same on every processor.
NARROW := kernels layers/test_attention layers/test_bidirectional layers/test_causal_attention layers/test_delta_net layers/test_gated_pyramid \
  layers/test_lattice_lstm layers/test_linear_attention layers/test_minimal_recurrences layers/test_recurrent layers/test_transformer_blocks \
  layers/test_window_attention training/test_dynamic_evaluation training/test_evaluate training/test_gradient_watch training/test_muon training/test_optimiser \
  training/test_precision training/test_resume training/test_training_loop
test-avx2: setup ## tests of kernels, recurrences, attention and training as on a processor that has AVX2 and nothing newer
	@if $(BIN)/python -c 'import sys, torch; sys.exit(torch.backends.cpu.get_cpu_capability() == "AVX2")'; then \
	  $(AVX2) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not (slow or scale)" \
	    $(patsubst tests/kernels.py,tests/kernels,$(NARROW:%=tests/%.py)); \
	  else echo "test-avx2: this processor has AVX2 and nothing newer, so that make test is the same"; fi

# What asks for a kernel itself; all other models are made of these layers. `make nightly` runs all without kernels.
TWINS := decoding/test_completion decoding/test_decodable_models decoding/test_sample_paths layers/test_bidirectional \
  layers/test_causal_attention layers/test_causal_conv1d layers/test_delta_net layers/test_lattice_lstm layers/test_linear_attention \
  layers/test_minimal_recurrences layers/test_recurrent layers/test_transformer_blocks layers/test_window_attention models/test_image_model \
  models/test_image_transformer models/test_made models/test_pixel_cnn models/test_pixel_cnn_pp models/test_pixel_rnn models/test_raster_model \
  models/test_recurrent_lm models/test_seq2seq models/test_table_made models/test_transformer_lm models/test_transformer_seq2seq \
  models/test_vae models/test_wavenet
test-plain: setup ## tests of layers and models that have a kernel, with all kernels off
	CHAINRULE_KERNELS=off OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not (slow or kernel)" $(TWINS:%=tests/%.py)

# Its own environment, with the three dependencies of the library and nothing else.
LIBRARY := $(VENV)/library
test-library: setup ## the library alone: PyTorch, NumPy and safetensors, without the application's packages
	@$(PYTHON) -m venv --clear $(LIBRARY)
	@$(PIP:$(BIN)/%=$(LIBRARY)/bin/%) hatchling editables >$(LIBRARY)/pip.log
	@$(PIP:$(BIN)/%=$(LIBRARY)/bin/%) --no-build-isolation . >>$(LIBRARY)/pip.log
	$(LIBRARY)/bin/python tests/library_alone.py

check: setup ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy chainrule chainrule_app

docs: setup ## build docs/_build/html strictly
	rm -rf docs/_build
	@$(BIN)/python -c 'import matplotlib.font_manager' # makes its list of fonts, of which a page would otherwise tell
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -n -q -b html docs docs/_build/html
	@echo "docs: open docs/_build/html/index.html"

bench: setup ## twelve speeds beside the published ranges, under five minutes; writes nothing
	@$(BIN)/python benchmarks/bench.py

bench-all: setup ## all speed measurements (an hour); tables on the screen, JSON in benchmarks/results
	@for script in benchmarks/speed_*.py benchmarks/sampling.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

nightly: setup ## the manual, tests, in browsers too, speed, thousands of damaged files, the training runs behind the results tables (hours)
	$(PIP) --no-build-isolation -e '.[nightly,scale]' >>$(LOG)
	-$(filter-out --only-binary%,$(PIP)) pyspark >>$(LOG) # has no wheel, and needs Java; without it the example of Spark is skipped
	$(MAKE) docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) --hypothesis-profile=nightly
	CHAINRULE_KERNELS=off OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not (slow or kernel)" tests/layers tests/models tests/decoding \
	  tests/test_contract.py
	$(AVX2) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not (slow or scale)" tests/layers tests/training
	$(BIN)/python deploy/check.py
	$(BIN)/python benchmarks/ray_kills.py
	$(MAKE) bench-all
	$(BIN)/python benchmarks/mutants.py --table build/mutants.md
	$(BIN)/python tests/fuzz/fuzz.py --cases 5000 --seed $$(date +%j)
	@for script in benchmarks/quality_*.py benchmarks/memory.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean: ## remove what make built, .venv too
	rm -rf $(VENV) docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
