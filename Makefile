# Everything here runs from the virtual environment that the README's test command makes.
BIN ?= .venv/bin

.PHONY: check format format-check lint types walls docs docs-check test golden crash bench lock

check: format-check lint types walls docs-check test

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

walls:
	$(BIN)/lint-imports

# Writes the pages of docs/reference that come from the code.
docs:
	$(BIN)/python -m tools.docs

docs-check:
	$(BIN)/python -m tools.docs --check

test:
	$(BIN)/pytest -q

# Derives anew what lies beside the golden sessions; its diff is the review. An edited recording is refused.
golden:
	$(BIN)/python -m perdure.testing.golden tests/golden/sessions

# The heavy tests at full size: kills, power cuts, torn files, both stores.
crash:
	PERDURE_ROUNDS=full $(BIN)/pytest tests/laws tests/kill --timeout 0

bench:
	$(BIN)/python -m bench journal

# Newest versions of everything, for every platform, into requirements.lock. Needs `uv`.
lock:
	uv pip compile -q --upgrade --universal --all-extras --python-version 3.11 --no-header --no-annotate pyproject.toml -o requirements.lock
