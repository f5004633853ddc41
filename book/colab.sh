#!/bin/sh
# Makes .colab, an environment with Colab's versions, and installs the package into it as a notebook's first cell does.
cd "$(dirname "$0")/.." || exit 1
log=.venv/colab.log
wanted="$PWD: $(cat requirements-colab.txt pyproject.toml book/colab.sh | cksum)"
[ "$(cat .colab/installed 2>/dev/null)" = "$wanted" ] && exit 0
rm -rf .colab
echo "Installing Colab's versions into .colab (once; several minutes, most of it PyTorch) ..."
if ! { .venv/bin/python -m venv .colab && .colab/bin/python -m pip install --disable-pip-version-check --quiet -r requirements-colab.txt; } >"$log" 2>&1; then
    echo "make: could not install Colab's versions: check the network and run it again (details: $log)." >&2
    exit 1
fi
frozen() { .colab/bin/python -m pip freeze --disable-pip-version-check --exclude attn-core; }
frozen >.colab/before
# The launch cell's own command, on a copy: pip would leave a folder beside the source.
copy=$(mktemp -d)
cp -R attn_core pyproject.toml README.md LICENSE "$copy"
.colab/bin/python -m pip install --disable-pip-version-check --quiet "$copy" >>"$log" 2>&1
done=$?
rm -rf "$copy"
if [ $done != 0 ]; then
    echo "make: the package does not install beside Colab's versions (details: $log)." >&2
    exit 1
fi
# It may add packages; it may replace none.
frozen | sort >.colab/after
sort -o .colab/before .colab/before
replaced=$(comm -23 .colab/before .colab/after)
if [ -n "$replaced" ]; then
    echo "make: installing the package on Colab would replace:" $replaced >&2
    exit 1
fi
printf '%s' "$wanted" >.colab/installed
