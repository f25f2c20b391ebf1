#!/usr/bin/env bash
# Copies each example into a package of its own, as users do, with the dependencies that examples/README.md names, and compiles it.
# `tests/copied.sh shop` copies one. Versions are those of this workspace, and `tollgate…` are the crates here.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

# The line of a dependency in a manifest, for the arguments of `cargo add`: a name, and features.
dependency() {
  local name=$1 features=${3:-} version
  version=$(sed -n "s/^$name = .*version = \"\([^\"]*\)\".*/\1/p; s/^$name = \"\([^\"]*\)\".*/\1/p" Cargo.toml | head -n 1)
  printf '%s = { version = "%s", features = [%s] }\n' "$name" "$version" "$(sed 's/[^,]\+/"&"/g' <<<"$features")"
}

# Rows of the table: files to copy, and the dependencies, each in backticks.
sed -n '/^## Copying one$/,$ s/^| *\(\[.*\) | *\(`.*\) |$/\1;\2/p' examples/README.md |
  while IFS=';' read -r names dependencies; do
    for name in $(grep -o '\[[a-z_]*\]' <<<"$names" | tr -d '[]'); do
      [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
      printf '== %s\n' "$name"
      package=$packages/$name
      mkdir -p "$package/src"
      file=$(ls "examples/$name.rs" "examples/start/$name.rs" 2>/dev/null || true)
      if [ -n "$file" ]; then cp "$file" "$package/src/main.rs"; else cp "examples/$name"/*.rs "$package/src"; fi
      {
        printf '[package]\nname = "copied_%s"\nversion = "0.1.0"\nedition = "2024"\n\n[dependencies]\n' "$name"
        grep -o '`[^`]*`' <<<"$dependencies" | tr -d '`' | while read -r arguments; do
          # shellcheck disable=SC2086
          case $arguments in build:*) ;; *) dependency $arguments ;; esac
        done
        if [[ $dependencies == *build:* ]]; then
          cp -r examples/build.rs examples/proto "$package"
          printf '\n[build-dependencies]\n'
          grep -o '`build: [^`]*`' <<<"$dependencies" | tr -d '`' | while read -r _ arguments; do
            # shellcheck disable=SC2086
            dependency $arguments
          done
        fi
        printf '\n[lints.rust]\nwarnings = "deny"\n\n[patch.crates-io]\n'
        for crate in crates/*/; do
          printf '%s = { path = "%s" }\n' "$(basename "$crate")" "$root/$crate"
        done
      } >"$package/Cargo.toml"
      cp Cargo.lock "$package"
      (cd "$package" && CARGO_TARGET_DIR="$root/target/copied" cargo check --quiet)
    done
  done
