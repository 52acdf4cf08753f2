#!/bin/sh
# Gets what no Python package brings: Chromium for the tests of the web page, and for tests/server/clients psql, pgjdbc and
# node's pg.
# Usage: sh tests/server/clients/fetch.sh DIRECTORY        (the tests look into .venv/clients)
# What can't be had is left out, with a word; the tests that need it are skipped.
set -u
into=${1:-.venv/clients}
mkdir -p "$into/jdbc" "$into/node"
for tool in chromium:chromium psql:postgresql-client; do
    command -v "${tool%%:*}" >/dev/null 2>&1 && continue
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${tool##*:}" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${tool##*:}" >/dev/null 2>&1; } ||
        echo "not to be had: ${tool##*:}"
done
if ! ls "$into"/jdbc/postgresql*.jar >/dev/null 2>&1; then
    work=$(mktemp -d)
    package=libpostgresql-jdbc-java
    (cd "$work" && apt-get download -q "$package" >/dev/null 2>&1 && dpkg -x "$package"_*.deb .) &&
        cp -L "$work/usr/share/java/postgresql.jar" "$into/jdbc/" || echo "not to be had: $package"
    rm -rf "$work"
fi
if [ ! -d "$into/node/node_modules/pg" ]; then
    npm install --silent --no-audit --no-fund --prefix "$into/node" pg@8 >/dev/null 2>&1 || echo "not to be had: pg (npm)"
fi
exit 0
