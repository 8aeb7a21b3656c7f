#!/bin/sh
# Install Chromium and PostgreSQL (in CI nginx and Caddy too) for the tests where they are missing and this user may; else say what
# to install.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

have_postgresql() {
    [ -n "${INSTRUCT_TEST_POSTGRES_URL:-}" ] && return
    command -v initdb >/dev/null 2>&1 && command -v postgres >/dev/null 2>&1 && return
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

have_chromium() {
    for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    .venv/bin/python - 2>/dev/null <<'PYTHON'
import os, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not os.path.exists(playwright.chromium.executable_path))
PYTHON
}

become_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_become_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 && may_become_root || return 1
    say "Installing $* with apt-get ..."
    become_root apt-get -qq -o DPkg::Lock::Timeout=120 update >&2 || true
    become_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" </dev/null >&2
}

# Ubuntu's package chromium only fetches a snap, which a container cannot run.
is_debian() { grep -q '^ID=debian' /etc/os-release 2>/dev/null; }

install_chromium() {
    if is_debian && { apt_install chromium-headless-shell || apt_install chromium; }; then return; fi
    say "Installing Chromium with Playwright ..."
    if may_become_root && command -v apt-get >/dev/null 2>&1; then
        .venv/bin/python -m playwright install --with-deps chromium >&2 || return 1
    else
        .venv/bin/python -m playwright install chromium >&2 || return 1
    fi
}

if ! have_postgresql && ! apt_install postgresql; then
    say "PostgreSQL is not there, so its tests are skipped. It comes with"
    say "  Debian, Ubuntu:  sudo apt-get install postgresql"
    say "  Fedora:          sudo dnf install postgresql-server"
    say "  macOS:           brew install postgresql@17 && export PATH=\"\$(brew --prefix postgresql@17)/bin:\$PATH\""
    say "or set INSTRUCT_TEST_POSTGRES_URL=postgresql+psycopg://user:password@host/postgres (it makes databases there)."
fi
# A machine of one's own would find a web server on its port 80 from then on.
if [ -n "${CI:-}" ] && ! PATH="$PATH:/usr/sbin" command -v nginx >/dev/null 2>&1; then
    apt_install nginx-light || say "nginx is not there, so the tests behind it are skipped."
fi
if [ -n "${CI:-}" ] && ! command -v caddy >/dev/null 2>&1; then
    apt_install caddy || say "Caddy is not there, so the tests behind it are skipped."
fi
if ! have_chromium && ! install_chromium; then
    say "Chromium is not there, so the tests in a browser are skipped. It comes with"
    say "  Debian:          sudo apt-get install chromium-headless-shell"
    say "  Ubuntu:          sudo .venv/bin/playwright install --with-deps chromium"
    say "  Fedora:          sudo dnf install chromium"
    say "  macOS:           .venv/bin/playwright install chromium"
fi
