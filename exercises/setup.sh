#!/bin/sh
# Makes ready for the instructor's commands: nbgrader and the sandbox's filter into .venv.
cd "$(dirname "$0")/.." || exit 1
.venv/bin/python -c 'import nbgrader, pyseccomp' 2>/dev/null && exit 0
if ! .venv/bin/python -m pip install --disable-pip-version-check --quiet -r requirements/nbgrader.txt >.venv/nbgrader.log 2>&1; then
    echo "make: could not install nbgrader and pyseccomp: check the network and run it again (details: .venv/nbgrader.log)." >&2
    exit 1
fi
