#!/usr/bin/env bash
# Runs everything that has to hold: format, lints, tests, examples, documentation.
#
# Needs Rust. The tests also drive clients of other ecosystems: curl, Chromium, and Python's gRPC. On Debian and Ubuntu
# what is missing of these is installed through apt-get, as root or with sudo; elsewhere this says what to install.
set -euo pipefail
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

step "lints, with all features and with none"
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy -p tollgate -p tollgate-core --no-default-features -- -D warnings

step "curl, Chromium and Python, as clients in the tests"
missing=()
command -v curl >/dev/null || missing+=(curl)
command -v "${TOLLGATE_CHROMIUM:-chromium}" >/dev/null || missing+=(chromium)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    printf 'missing: %s\nThere is no apt-get to install them with. Do it by hand, and run this again.\n' "${missing[*]}" >&2
    exit 1
  fi
  printf 'installing with apt-get: %s\n' "${missing[*]}"
  as_root=(env DEBIAN_FRONTEND=noninteractive)
  [ "$(id -u)" -eq 0 ] || as_root=(sudo "${as_root[@]}")
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if cmp -s tests/python/requirements.txt target/python/requirements.txt; then
  printf 'target/python has what tests/python/requirements.txt lists\n'
else
  printf 'making target/python, a virtual environment with what tests/python/requirements.txt lists\n'
  rm -rf target/python
  python3 -m venv target/python
  target/python/bin/pip install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement tests/python/requirements.txt
  # Last, so that an interrupted installation is made anew.
  cp tests/python/requirements.txt target/python/
fi
export TOLLGATE_PYTHON="$PWD/target/python/bin/python"

step "tests and documentation tests"
cargo test --workspace --all-features

step "each feature alone"
for feature in axum client metrics tokio tonic tracing; do
  cargo check --quiet -p tollgate --no-default-features --features "$feature"
done

step "the store under random schedules"
RUSTFLAGS="--cfg tollgate_shuttle" CARGO_TARGET_DIR=target/schedules \
  cargo test -p tollgate-core --lib schedules

step "examples"
cargo build --workspace --examples --all-features
cargo run --quiet --example worker
cargo run --quiet --example tonic
cargo run --quiet --example polite_client

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

printf '\neverything passed\n'
