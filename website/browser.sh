#!/bin/sh
# Makes ready for the browser tests: Playwright, axe-core, Notebook 7 and pikepdf into .venv. Chromium, and Firefox
# if it is asked for, are on the machine already.
cd "$(dirname "$0")/.." || exit 1
if [ -n "${CHROMIUM:-}" ]; then
    found=$(command -v "$CHROMIUM")
else
    found=$(command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable)
fi
if [ -z "$found" ]; then
    echo "make: this needs Chromium: install it (Debian: apt-get install chromium) or name it with CHROMIUM=/path/to/chromium." >&2
    exit 1
fi
if [ "${1:-}" = firefox ]; then
    if [ -n "${FIREFOX:-}" ]; then
        found=$(command -v "$FIREFOX")
    else
        found=$(command -v firefox-esr || command -v firefox)
    fi
    if [ -z "$found" ]; then
        echo "make: this needs Firefox: install it (Debian: apt-get install firefox-esr) or name it with FIREFOX=/path/to/firefox." >&2
        exit 1
    fi
fi
.venv/bin/python -c 'import axe_playwright_python, notebook, pikepdf, playwright' 2>/dev/null && exit 0
if ! .venv/bin/python -m pip install --disable-pip-version-check --quiet -r requirements/browser.txt >.venv/browser.log 2>&1; then
    echo "make: could not install Playwright and Notebook 7: check the network and run it again (details: .venv/browser.log)." >&2
    exit 1
fi
