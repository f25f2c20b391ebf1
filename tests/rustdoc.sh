#!/bin/sh
# rustdoc as docs.rs runs it: with `doc_cfg`, which shows the feature that each item needs. It is not stable, and docs.rs has a
# nightly compiler.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
