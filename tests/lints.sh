#!/usr/bin/env bash
# The compiler of the test command, as RUSTC_WORKSPACE_WRAPPER: clippy, which is a whole compiler and finds the lints as well.
#
# Of programs that no test starts it makes no machine code, which is most of the work: they are checked, as `cargo check` does. A
# test that is to start one of them would not find it.
#
# Nor does it optimize test programs whose own code takes longer to optimize than it runs. What they call in a library is optimized.
set -euo pipefail

arguments=("$@")
examples='--crate-name (hello|leased|requeue|rest_and_grpc|script|shop|waiters) '
if [[ ${CARGO_PKG_NAME:-} == tollgate-benches || " $* " =~ $examples ]] && [[ " $* " != *" --test "* ]]; then
  # Of a library there is metadata too, and this does not fit.
  arguments=("${arguments[@]/#--emit=dep-info,link/--emit=dep-info,metadata}")
fi
slow_to_optimize='--crate-name (algorithms|store|tollgate_core|tollgate_prefilter) '
if [[ ${CARGO_PKG_NAME:-} =~ ^tollgate-(core|prefilter)$ && " $* " =~ $slow_to_optimize && " $* " == *" --test "* ]]; then
  arguments=("${arguments[@]/#opt-level=*/opt-level=0}")
fi
exec clippy-driver "${arguments[@]}"
