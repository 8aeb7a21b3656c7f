#!/bin/sh
# Check the types in the scripts' JSDoc comments, where npm is there to bring TypeScript.
set -eu
cd "$(dirname "$0")/.."
typescript=typescript@7.0.2

run() { npm exec --yes --prefer-offline --package="$typescript" -- tsc "$@"; }

if ! command -v npm >/dev/null 2>&1; then
    echo "The scripts' types are not checked: there is no npm." >&2
elif ! run --version >/dev/null 2>&1; then
    echo "The scripts' types are not checked: npm could not bring $typescript." >&2
else
    run -p jsconfig.json
fi
