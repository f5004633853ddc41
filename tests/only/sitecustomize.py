"""Python imports this file by itself when its folder is in PYTHONPATH: as if few packages were installed.

ONLY names them, with commas between. They, and what they need, can be imported, and so can this project.
"""

import os
import re
import sys
from importlib import metadata


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def with_needs(names):
    found = {"attn-core"}  # its own packages; what it needs is not installed
    while names:
        name = normal(names.pop())
        if name not in found:
            found.add(name)
            needs = metadata.requires(name) or []
            names += [re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need]
            names = [one for one in names if normal(one) in INSTALLED]
    return found


INSTALLED = {normal(one.name) for one in metadata.distributions()}
KEPT = with_needs(os.environ["ONLY"].split(","))
LEFT_OUT = {top for top, owners in metadata.packages_distributions().items() if not KEPT & set(map(normal, owners))}


class Finder:
    """The usual finders, to which some packages are unknown."""

    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LEFT_OUT:
            return None
        found = (finder.find_spec(name, path, target) for finder in self.finders)
        return next((spec for spec in found if spec is not None), None)


sys.meta_path[:] = [Finder(sys.meta_path[:])]
