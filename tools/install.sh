#!/bin/sh
# Make .venv with the packages of one extra: tools/install.sh demo|dev
# Does nothing, and needs no network, where that was done before for the same pyproject.toml and constraints.txt.
set -eu
cd "$(dirname "$0")/.."
extra=$1
venv=.venv
stamp=$venv/installed-$extra
wanted=$(cat pyproject.toml constraints.txt | cksum)

say() { printf '%s\n' "$*" >&2; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    # A Python that was asked for is taken or refused; otherwise the first one that is new enough.
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    found=${PYTHON:-python3}
    if command -v "$found" >/dev/null 2>&1; then
        say "Python 3.11 or newer is needed, and $found is $("$found" --version 2>&1). Install one, for example:"
    else
        say "Python 3.11 or newer is needed, and there is no $found on PATH. Install one, for example:"
    fi
    say "  Debian, Ubuntu:  sudo apt-get install python3 python3-venv   (Ubuntu 22.04: python3.11 python3.11-venv)"
    say "  Fedora:          sudo dnf install python3"
    say "  macOS:           brew install python"
    say "and name it if it is not the first on PATH: make demo PYTHON=/path/to/python3"
    exit 1
}

make_venv() {
    python=$(find_python)
    rm -rf "$venv"
    if ! output=$("$python" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        say "$output"
        say ""
        say "$python could not make a virtual environment. The package that brings what is missing:"
        say "  Debian, Ubuntu:  sudo apt-get install python$version-venv"
        say "  Fedora:          sudo dnf install python3-pip python3-libs"
        exit 1
    fi
}

if "$venv/bin/python" -c '' 2>/dev/null; then
    for done in "$stamp" "$venv/installed-dev"; do
        [ "$(cat "$done" 2>/dev/null)" = "$wanted" ] && exit 0
    done
else
    make_venv
fi
say "Installing the packages of [$extra] into $venv ..."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extra]"
printf '%s\n' "$wanted" >"$stamp"
