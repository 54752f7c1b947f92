#!/usr/bin/env bash
# Resolves pyproject.toml into the two lock files. Versions already locked are kept; `UPGRADE=1 make lock` takes newer ones.
# Needs uv, which is no dependency of the project: only who changes a dependency runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(command -v .venv/bin/uv || command -v uv) || { echo "make lock needs uv (https://docs.astral.sh/uv)" >&2; exit 1; }
flags=(--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet)
[[ -n "${UPGRADE:-}" ]] && flags+=(--upgrade)

# lock OUTPUT TITLE [ARGUMENT...]
lock() {
  local output=$1 title=$2
  shift 2
  "$uv" pip compile pyproject.toml "${flags[@]}" "$@" --output-file "$output" > /dev/null
  printf '# %s\n# Made by `make lock` from pyproject.toml; do not edit.\n%s\n' "$title" "$(grep -v '^#' "$output")" > "$output"
}

lock requirements-dev.lock "Runtime and development dependencies, exact versions with hashes: what \`make install\` installs." --extra dev
lock requirements.lock "Runtime dependencies alone, exact versions with hashes: for images and packagers." --constraint requirements-dev.lock
