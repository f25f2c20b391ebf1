#!/usr/bin/env bash
# Runs everything that has to hold: format, lints, tests, examples, documentation. Needs nothing but Rust.
set -euo pipefail
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

step "lints, with all features and with none"
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy -p tollgate -p tollgate-core --no-default-features -- -D warnings

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
cargo run --quiet --example polite_client

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

printf '\neverything passed\n'
