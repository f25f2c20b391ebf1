#!/usr/bin/env bash
# The compiler of the tests under random schedules, as RUSTC_WORKSPACE_WRAPPER: locks and atomics are those of shuttle. What they depend on
# is what all tests depend on, and compiled once. Compiled for these few tests alone, the rest is not optimized: it would take longer than it
# saves.
set -euo pipefail

exec "${@/#opt-level=*/opt-level=0}" --cfg tollgate_shuttle
