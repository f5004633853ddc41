"""The pictures of shared links: a shape that would be drawn wrongly is refused."""

import pytest

from website.cards import card, points_of


def test_corners_of_a_path():
    assert points_of("M1 2h3v-1l2 2H0z") == [(1, 2), (4, 2), (4, 1), (6, 3), (0, 3), (1, 2)]
    arc = points_of("M6 34A4.5 4.5 0 0 1 15 34")
    assert arc[-1] == pytest.approx((15, 34)) and min(y for _, y in arc) == pytest.approx(29.5)


@pytest.mark.parametrize("path", ["M1 2C1 2 3 4 5 6", "M6 34A4.5 4.5 0 0 0 15 34", "M6 34A4.5 4.5 0 0 1 14 34"])
def test_a_path_of_another_kind_is_refused(path):
    with pytest.raises(ValueError, match="^expected lines and upper halves of circles, got "):
        points_of(path)


def test_a_shape_of_another_kind_is_refused(tmp_path):
    picture = tmp_path / "a.svg"
    picture.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><ellipse/></svg>', encoding="utf-8")
    with pytest.raises(ValueError, match="^expected svg, g, rect, circle, path or polyline, got ellipse$"):
        card("A title", "A book", picture)
