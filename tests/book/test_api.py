"""The page of public names is what the packages say today."""

from tests.book.built_site import ROOT
from website import api


def test_the_page_is_not_behind_the_package():
    assert (ROOT / "reference" / "api.md").read_text(encoding="utf-8") == api.page(), "make api"


def test_only_the_first_sentence_is_shown():
    def power(x):
        """The square of ``x_1``, a 2*2 table after <bos>. More of it here.

        And here.
        """

    assert api.first_sentence(power) == r"The square of `x_1`, a 2\*2 table after \<bos>."
