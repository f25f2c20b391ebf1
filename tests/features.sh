#!/usr/bin/env bash
# Compiles with each feature alone, and the examples with their own features only. The test command has all features on:
# it cannot see that a feature lacks another, or leaves code unused. Run this after a change of features.
set -euo pipefail
cd "$(dirname "$0")/.."

printf '== tollgate, tollgate-client and tollgate-core with nothing\n'
cargo clippy --quiet -p tollgate -p tollgate-client -p tollgate-core --no-default-features -- -D warnings

for feature in axum calendar metrics serde tonic tracing uuid; do
  printf '== tollgate with %s alone\n' "$feature"
  cargo check --quiet -p tollgate --no-default-features --features "$feature"
done

# A feature that is missing leaves code unused, which is a warning.
for feature in "" metrics tls tracing; do
  printf '== tollgate-redis with %s alone\n' "${feature:-nothing}"
  cargo clippy --quiet -p tollgate-redis --features "$feature" -- -D warnings
done

for feature in "" axum metrics redis tls tracing; do
  printf '== tollgate-rules with %s alone\n' "${feature:-nothing}"
  cargo clippy --quiet -p tollgate-rules --no-default-features --features "$feature" -- -D warnings
done

for feature in metrics tracing; do
  printf '== tollgate-core with %s alone\n' "$feature"
  cargo clippy --quiet -p tollgate-core --features "$feature" -- -D warnings
done

for feature in tonic metrics tracing; do
  printf '== tollgate-client with %s alone\n' "$feature"
  cargo clippy --quiet -p tollgate-client --features "$feature" -- -D warnings
done

printf '== the examples, as users run them\n'
cargo check --quiet -p tollgate-examples --examples

tests/copied.sh
