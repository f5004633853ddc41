"""Python imports this file by itself when its folder is in PYTHONPATH: as if few packages were installed.

ONLY names them, with commas between. They, and what they need, can be imported, and so can this project.
"""

import os
import re
import sys
from importlib import metadata


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


INSTALLED, KEPT = {normal(one.name) for one in metadata.distributions()}, {"attn-core"}
left = os.environ["ONLY"].split(",")
while left:
    name = normal(left.pop())
    if name in INSTALLED - KEPT:
        KEPT.add(name)
        left += [re.match(r"[\w.-]+", need)[0] for need in metadata.requires(name) or () if "extra ==" not in need]
LEFT_OUT = {top for top, owners in metadata.packages_distributions().items() if not KEPT & set(map(normal, owners))}


class Finder:
    """The usual finders, to which some packages are unknown."""

    finders = sys.meta_path[:]

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LEFT_OUT:
            return None
        return next(filter(None, (finder.find_spec(name, path, target) for finder in self.finders)), None)


sys.meta_path[:] = [Finder()]
