#!/usr/bin/env bash
# Runs everything that has to hold: format, lints, tests, examples, documentation. `./test.sh JOB` runs a part of it: `lints`,
# `tests`, `edge`, `servers`, `schedules` or `docs`. Continuous integration runs each part on a machine of its own. `./test.sh quick` is for
# in between: the tests next to the code that need neither servers nor patience.
#
# The tests run in the background, several programs at a time: most of them wait for servers. What they print is shown at the end.
#
# Needs Rust. `tests` and `servers` also drive programs of other ecosystems: see tests/install.sh.
set -euo pipefail
cd "$(dirname "$0")"

job=${1:-everything}
case $job in
everything | quick | lints | tests | edge | servers | schedules | docs) ;;
*)
  printf 'there is no job %s: take quick, lints, tests, edge, servers, schedules, docs, or none of them for everything\n' "$job" >&2
  exit 2
  ;;
esac

# The same random cases each time, and not many. `cargo test` by itself takes others at each run, and more. They are drawn by
# xorshift: ChaCha, which is the default, is most of what a property of an algorithm takes where it is not optimized.
export PROPTEST_RNG_SEED=20260722 PROPTEST_CASES=100 PROPTEST_RNG_ALGORITHM=xs
export TOLLGATE_PYTHON="$PWD/target/python/bin/python"

# In an empty folder there is nothing to build upon, and what the next build could build upon costs a fifth of the time. A test that
# fails says where without debug information, too. The assertions of the standard library and
# of dependencies cost the tests a tenth; Cargo.toml keeps those of crates that have some of their own.
if [ ! -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ]; then
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
  export CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false CARGO_PROFILE_DEV_OVERFLOW_CHECKS=true
fi

documentation="${CARGO_TARGET_DIR:-$PWD/target}/doc"

step() { printf '\n== %s\n' "$*"; }

# How long a part took, and how much of the processors.
TIMEFORMAT='(%R s; %U s of processor time and %S s of the system)'

format() {
  step "format"
  cargo fmt --all --check
}

clippy() {
  step "lints, with all features"
  time cargo clippy --workspace --all-targets --all-features -- -D warnings
}

docs() {
  step "documentation, as docs.rs builds it"
  time RUSTDOC="$PWD/tests/rustdoc.sh" cargo doc --workspace --all-features --no-deps || return
  links
}

# What the READMEs of crates link to on docs.rs is among what was made.
links() {
  grep -oh 'https://docs\.rs/tollgate[^ )#/]*/latest/[^ )#]*' crates/*/README.md | sort -u |
    sed "s|https://docs.rs/[^/]*/latest|$documentation|" | xargs ls >/dev/null
}

# What runs in the background, with what it prints.
declare -A running=()
printed=$(mktemp -d)
stop() {
  for job in "${running[@]}"; do
    kill -- "-$job" 2>/dev/null || true
  done
  rm -rf "$printed"
}
trap stop EXIT

# in_background NAME COMMAND…
in_background() {
  local name=$1
  printf '\n== %s: in the background\n' "$name"
  # A process group of its own, to be ended as a whole.
  set -m
  (time "${@:2}") </dev/null >"$printed/$name" 2>&1 &
  running[$name]=$!
  set +m
}

wait_for() {
  local failed=0
  wait "${running[$1]}" || failed=$?
  unset "running[$1]"
  step "$1"
  cat "$printed/$1"
  return "$failed"
}

# In the background, to be waited for at the end.
background=()
start() {
  background+=("$1")
  in_background "$@"
}

# The parts that have failed. None hides the others.
failed=()

wait_for_all() {
  for name in "${background[@]}"; do
    wait_for "$name" || failed+=("$name")
  done
}

# attempt NAME COMMAND…: now, and not in the background.
attempt() { "${@:2}" 2>&1 | tee "$printed/$1" || failed+=("$1"); }

# What those need who see only the end: the parts that have failed, and the panics of their tests or else their last lines.
failures() {
  for name in "${failed[@]}"; do
    step "failed: $name"
    awk '/^failures:$/ { on = 1 } /^test result/ { on = 0 } / has failed$/ || on && (/^---- / || /panicked at/) { left = on ? 10 : 1 } left-- > 0' \
      "$printed/$name" | grep . || tail -n 20 "$printed/$name"
  done | cut -c -500 | head -n 120
}

# Clippy is a whole compiler: what builds the tests finds the lints. `cargo clippy` would compile everything once more.
#
# Of the whole workspace each time: `-p` would choose other features, and compile all dependencies again.
linted() { RUSTC_WORKSPACE_WRAPPER="$PWD/tests/lints.sh" cargo "$@" --workspace --all-features; }

# What the tests drive is installed meanwhile.
build() {
  # Envoy and other proxies are 400 MB.
  local without=(--without-proxies)
  [[ $job != everything && $job != edge ]] || without=()
  in_background "curl, Chromium and Python, as clients in the tests, Redis, and Prometheus" tests/install.sh "${without[@]}"
  step "building the tests, with lints for all targets and features"
  # A line for each test program: its name, the folder of its package, and where it is.
  time built=$({
    linted build --color never --all-targets --message-format=json-render-diagnostics 2>&1 >&3 | tee "$printed/messages" >&2
  } 3>&1 |
    sed -n 's#.*"manifest_path":"\([^"]*\)/Cargo.toml".*"name":"\([^"]*\)".*"test":true},"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*#\2|\1|\3#p')
  # A program that is not found would not fail.
  local programs
  programs=$(cargo metadata --no-deps --format-version 1 | grep -o '"test":true' | wc -l)
  if [ "$(wc -l <<<"$built")" -ne "$programs" ]; then
    printf 'of %s test programs these were built:\n%s\n' "$programs" "$built" >&2
    return 1
  fi
  wait_for "curl, Chromium and Python, as clients in the tests, Redis, and Prometheus"
}

# What the build has found, which is why it has no colours. Not an error of the build, so that a warning hides no test.
lints_of_build() {
  step "lints"
  ! grep -A 4 '^warning' "$printed/messages"
}

# test_program LINE ARGUMENT…: of what was built. Without cargo, which would wait for what is compiled meanwhile.
test_program() {
  local name folder program
  IFS='|' read -r name folder program <<<"$1"
  printf '\n%s, in %s\n' "$name" "${folder#"$PWD/"}"
  (cd "$folder" && time "$program" "${@:2}")
}

# What takes the longest, to be begun first.
longest='^(model|tollgate_redis|store|layer|engine|algorithms|cli|prefilter|tollgate_core|faults|servers|clients)[|]'

# What starts Envoy and other proxies.
proxied='^(edge|proxies)[|]'

# Each test program of a list that no other part has begun.
test_programs() {
  local failed=0 line
  while read -r line; do
    mkdir "$printed/${line##*/}" 2>/dev/null || continue
    test_program "$line" </dev/null || {
      failed=1
      printf '%s has failed\n' "${line%%|*}"
    }
  done <<<"$1"
  return "$failed"
}

# Its clients wait, so it costs little beside the others.
a_minute_over_http() {
  export TOLLGATE_DEBT_SECONDS=60
  test_program "$(grep '^layer|' <<<"$built")" over_http_clients_use
}

start_tests() {
  start "debt over HTTP, for a minute" a_minute_over_http
  local programs
  programs=$(grep -E "$longest" <<<"$built"; grep -vE "$longest|$proxied" <<<"$built")
  for part in 1 2 3; do
    start "tests, part $part of 3" test_programs "$programs"
  done
}

start_edge() { start "tollgate-server with Envoy and other proxies" test_programs "$(grep -E "$proxied" <<<"$built")"; }

documentation_tests() {
  RUSTDOC="$PWD/tests/rustdoc.sh" TOLLGATE_DOCUMENTATION=$documentation linted test --doc --no-fail-fast || return
  links
}

start_documentation_tests() { start "documentation as docs.rs builds it, and its tests" documentation_tests; }

# The tests have built them already.
examples() {
  step "examples"
  for example in worker tonic redis_outage; do
    "${CARGO_TARGET_DIR:-target}/debug/examples/$example" || return
  done
}

random_schedules() {
  RUSTC_WORKSPACE_WRAPPER="$PWD/tests/schedules.sh" cargo test --workspace --all-features --test schedules
}

# A test program of the crate tollgate-redis.
redis_tests() {
  test_program "$(grep "^$1|.*/tollgate-redis|" <<<"$built")" "${@:2}"
}

other_servers() {
  for server in "$@"; do
    if [ ! -e "target/servers/$server" ]; then
      printf 'there is no package of %s for %s: not tested\n' "$server" "$(uname -sm)"
      continue
    fi
    printf '%s: ' "$server"
    "target/servers/$server" --version
    export TOLLGATE_REDIS_SERVER="$PWD/target/servers/$server"
    # How keys are written, and what is decided here, are the same with every server.
    redis_tests conformance hashed
    # These start servers with settings that Redis 6.2 does not know.
    if [ "$server" != redis-6.2 ]; then
      redis_tests servers credentials::
    fi
    # Without the tests that move a server's clock: the newest servers do not ask the system for the time.
    # Shorter histories than above: what differs is the server, and not the script. What stalls cost is computed without a server.
    TOLLGATE_PARITY_STEPS=1500 redis_tests tollgate_redis \
      internal_tests::guide internal_tests::parity internal_tests::script --skip time_to_live --skip guide::stalls
  done
}

lints() {
  format
  clippy
}

quick() {
  step "the tests next to the code that need neither servers nor patience"
  cargo test --workspace --all-features --lib --bins -- --skip internal_tests \
    --skip never_evicted_whatever_the_bound
}

tests() {
  build
  start_tests
  start_documentation_tests
  attempt examples examples
  wait_for_all
}

edge() {
  build
  start_edge
  wait_for_all
}

# One server more than in the whole command, which has its neighbours.
servers() {
  build
  other_servers redis-6.2 redis-7.4 redis-8.2 valkey-9.1
}

schedules() {
  step "the memory store and the prefilter under random schedules"
  random_schedules
}

everything() {
  format
  build
  start_tests
  start_edge
  start "the store on the oldest Redis, and on Valkey" other_servers redis-6.2 valkey-9.1
  start "the store on the newest Redis" other_servers redis-8.2
  start "the memory store and the prefilter under random schedules" random_schedules
  start_documentation_tests
  attempt examples examples
  attempt lints lints_of_build
  wait_for_all
}

"$job"
if [ "${#failed[@]}" -gt 0 ]; then
  failures
  exit 1
fi
printf '\n%s passed\n' "$job"
