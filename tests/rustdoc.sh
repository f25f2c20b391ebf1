#!/usr/bin/env bash
# rustdoc as docs.rs runs it: with `doc_cfg`, which shows the feature that each item needs. It is not stable, and docs.rs has a
# nightly compiler. So RUSTC_BOOTSTRAP is set for rustdoc alone: build scripts look at it, and with it cargo would compile all
# dependencies anew.
#
# Called by `cargo test --doc`, it makes the documentation as well, in front of the tests. `cargo doc` would check all dependencies
# for it, which the build of the tests has compiled.
set -euo pipefail

# A line of the manifest of the package. Cargo asks for the tests of each documentation, whatever the manifest says.
says() { grep -qx "$1" "${CARGO_MANIFEST_DIR:?it is set by cargo}/Cargo.toml"; }

# Packages that are not published are not on docs.rs.
document() { says 'publish = false' || RUSTC_BOOTSTRAP=1 rustdoc --cfg docsrs -D warnings "$@"; }

case " $* " in
*" --test "*) ;;
*)
  document "$@"
  exit
  ;;
esac

arguments=()
is_of_tests=
for argument in "$@"; do
  if [ -n "$is_of_tests" ]; then
    is_of_tests=
    continue
  fi
  case $argument in
  --test | --no-run) ;;
  --test-args | --test-run-directory) is_of_tests=1 ;;
  *) arguments+=("$argument") ;;
  esac
done
failed=0
document --out-dir "${TOLLGATE_DOCUMENTATION:?set it to the folder for the documentation}" "${arguments[@]}" || failed=1
says 'doctest = false' || rustdoc "$@" || failed=1
exit "$failed"
