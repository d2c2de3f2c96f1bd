# Two targets set everything up on a fresh machine; each makes its own virtual environment.
PYTHON ?= python3
PIP_FLAGS := --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test clean

demo: .venv-demo/installed
	.venv-demo/bin/dbo-sched compare --model deepseek-v3 --system h100 --nodes 4 --tokens 8192 --out out

test: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest

.venv-demo/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/pip install $(PIP_FLAGS) --editable .
	@touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-demo out dist
