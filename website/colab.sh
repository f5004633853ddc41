#!/bin/sh
# Makes .colab, an environment with Colab's versions, once; and installs the package into it as a notebook's first cell does,
# each time, from the source as it is.
cd "$(dirname "$0")/.." || exit 1
log=.venv/colab.log
stop() {
    printf 'make: %s\n' "$1" >&2
    exit 1
}
pip() { .colab/bin/python -m pip --disable-pip-version-check "$@"; }
frozen() { pip freeze --exclude attn-core | sort; }

wanted="$(.venv/bin/python -V) in $PWD: $(cat requirements/colab.txt website/colab.sh | cksum)"
if [ "$(cat .colab/installed 2>/dev/null)" != "$wanted" ]; then
    echo "Installing Colab's versions into .colab (once; several minutes, most of it PyTorch) ..."
    rm -rf .colab
    # Not compiled: the notebooks import a part of it.
    { .venv/bin/python -m venv .colab && pip install --quiet --no-compile -r requirements/colab.txt; } >"$log" 2>&1 ||
        stop "could not install Colab's versions: check the network and run it again (details: $log)."
    frozen >.colab/colab
    printf '%s' "$wanted" >.colab/installed
fi

# The launch cell's own command, on a copy: pip would leave a folder beside the source.
copy=$(mktemp -d)
cp -R attn_core attn_book pyproject.toml README.md LICENSE "$copy"
{ pip uninstall --quiet --yes attn-core && pip install --quiet "$copy"; } >"$log" 2>&1
done=$?
rm -rf "$copy"
[ $done = 0 ] || stop "the package does not install beside Colab's versions (details: $log)."
# It may add packages; it may replace none.
frozen >.colab/after
replaced=$(comm -23 .colab/colab .colab/after | tr '\n' ' ')
[ -z "$replaced" ] || stop "installing the package on Colab would replace $replaced"
# What some pages install themselves, on Colab.
for part in d2l models; do
    pip install --quiet --no-deps -r requirements/$part.txt >>"$log" 2>&1 ||
        stop "could not install requirements/$part.txt (details: $log)."
done
