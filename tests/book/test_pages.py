"""The built pages, parsed: nothing comes from another host, and what they point at is there."""

import json
import re
import zlib

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from tests.book import built_site as site
from website import sections

if not site.pages():
    pytest.fail("the site is not built: run `make site`, which builds it first", pytrace=False)

each = pytest.mark.parametrize("page", site.pages())
chapter = pytest.mark.parametrize("page", site.chapters())
CSS_ELSEWHERE = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])\s*((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)
SCRIPT_ELSEWHERE = re.compile(
    r"""(?:fetch|import|importScripts|\.src\s*=|\bfrom)\s*\(?\s*['"`](?:https?:)?//|unpkg\.com|//cdn\."""
)


def elsewhere(page):
    """What a page would fetch from another host: by its tags, its styles, its own scripts."""
    found = [address for _, address in site.fetched(page) if site.is_elsewhere(address)]
    styles = [tag.get_text() for tag in page.find_all("style")] + [tag["style"] for tag in page.find_all(style=True)]
    found += [address for style in styles for address in CSS_ELSEWHERE.findall(style)]
    scripts = [tag.get_text() for tag in page.find_all("script", src=False)]
    return found + [match.group() for text in scripts for match in SCRIPT_ELSEWHERE.finditer(text)]


@each
def test_nothing_is_fetched_from_elsewhere(page):
    assert elsewhere(site.parsed(page)) == []


def test_no_style_sheet_fetches_from_elsewhere():
    sheets = {path.name: CSS_ELSEWHERE.findall(path.read_text(encoding="utf-8")) for path in site.HTML.rglob("*.css")}
    assert "book.css" in sheets and not {name: found for name, found in sheets.items() if found}


@each
def test_what_a_page_points_at_inside_the_site_is_there(page):
    links = [str(tag[key]) for key in ("href", "src") for tag in site.parsed(page).find_all(attrs={key: True})]
    for address in links:
        if address in ("", "#") or site.is_elsewhere(address) or address.startswith(("data:", "blob:")):
            continue
        path, place = site.target(page, address)
        assert path.exists(), address
        if place and path.suffix == ".html":
            assert place in site.anchors(path.relative_to(site.HTML).as_posix()), address


@each
def test_pictures_have_alt_text(page):
    assert not [str(image) for image in site.parsed(page).select("article img") if not image.get("alt", "").strip()]


def scripted(page):
    """What a page runs by an attribute: inline handlers, and addresses that are scripts, which may hide in blanks."""
    bad = []
    for tag in page.find_all(True):
        for name, value in tag.attrs.items():
            address = re.sub(r"[\s\0-\x20]", "", str(value))
            if name.lower().startswith("on") or re.match(r"(?i)(java|vb)script:", address):
                bad.append(str(tag)[:120])
    return bad


@each
def test_no_page_has_an_inline_handler_or_a_script_for_an_address(page):
    """The theme's own parts included: header, sidebars, search and footer."""
    assert scripted(site.parsed(page)) == []


@pytest.mark.parametrize(
    ("faults", "markup"),
    [
        (elsewhere, '<script src="https://example.org/a.js"></script>'),
        (elsewhere, '<link rel="stylesheet" href="https://example.org/a.css">'),
        (elsewhere, '<img alt="" srcset="a.png 1x, //example.org/a.png 2x">'),
        (elsewhere, "<style>@import 'https://example.org/a.css';</style>"),
        (elsewhere, '<p style="background: url(https://example.org/a.png)"></p>'),
        (elsewhere, "<script>fetch('https://example.org/a.json')</script>"),
        (elsewhere, '<script>const THEBE_JS_URL = "https://unpkg.com/thebe"</script>'),
        (scripted, '<button onclick="window.print()">x</button>'),
        (scripted, '<img alt="" src="a.png" ONERROR="x()">'),
        (scripted, '<a href=" JavaScript:x()">x</a>'),
        (scripted, '<a href="java&#10;script:x()">x</a>'),
        (scripted, '<svg><a xlink:href="vbscript:x()"></a></svg>'),
    ],
)
def test_what_comes_from_elsewhere_or_runs_by_an_attribute_is_noticed(faults, markup):
    assert faults(BeautifulSoup(markup, "lxml"))


@each
def test_no_other_repository_is_named(page):
    links = [str(tag["href"]) for tag in site.parsed(page).find_all("a", href=True)]
    name = site.repository().rpartition("/")[2]
    ours = [link for link in links if link.startswith("https://github.com/") and link.split("/")[4:5] == [name]]
    assert [link for link in ours if not f"{link}/".startswith(f"{site.repository()}/")] == []


@each
def test_formulas_are_set_by_our_own_mathjax(page):
    scripts = [site.target(page, str(tag["src"]))[0] for tag in site.parsed(page).find_all("script", src=True)]
    mathjax = [path for path in scripts if "mathjax" in path.parts]
    assert mathjax == ([site.HTML / "mathjax" / "startup.js"] if site.parsed(page).select(".math") else mathjax)


def test_mathjax_and_its_fonts_lie_beside_the_pages():
    for part in site.settings()["sphinx"]["config"]["mathjax3_config"]["loader"]["load"]:
        assert (site.HTML / "mathjax" / f"{part.replace('[tex]', 'input/tex/extensions')}.js").is_file()
    assert len(list((site.HTML / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))) > 20


@chapter
def test_a_chapter_has_its_buttons(page):
    links = [str(tag["href"]) for tag in site.parsed(page).find_all("a", href=True)]
    short, notebook = site.repository().removeprefix("https://github.com/"), page.replace(".html", ".ipynb")
    assert f"https://colab.research.google.com/github/{short}/blob/main/{notebook}" in links
    assert any(link.startswith(f"https://mybinder.org/v2/gh/{short}/main") for link in links)
    assert site.repository() in links


def test_the_sitemap_lists_every_page_that_one_may_look_for():
    listed = re.findall(r"<loc>([^<]+)</loc>", (site.HTML / "sitemap.xml").read_text(encoding="utf-8"))
    address = site.settings()["sphinx"]["config"]["html_baseurl"]
    assert sorted(listed) == [f"{address}{page}" for page in site.pages() if page not in ("404.html", "search.html")]


def test_a_shared_link_shows_a_picture_of_the_page():
    """Other hosts fetch it, so its address is the full one."""
    site_address = site.settings()["sphinx"]["config"]["ogp_site_url"]
    for page in site.pages():
        if page not in ("404.html", "search.html", "genindex.html"):  # which nobody shares
            said = {tag["property"]: tag["content"] for tag in site.parsed(page).select('meta[property^="og:"]')}
            assert said["og:title"] and said["og:description"] and said["og:image:alt"]
            assert said["og:url"] == site_address + page and said["og:image"].startswith(site_address)
            with Image.open(site.HTML / said["og:image"].removeprefix(site_address)) as picture:
                assert picture.format == "PNG" and picture.width > 1000


def test_the_page_for_addresses_that_lead_nowhere_stands_at_any_depth():
    page = site.parsed("404.html")
    assert page.find("h1", string="Page not found")
    local = [a for tag in page.find_all(attrs={"href": True}) if not site.is_elsewhere(a := str(tag["href"]))]
    assert [a for a in local if not a.startswith((site.base(), "#"))] == []


def test_the_index_leads_to_where_a_chapter_first_links_a_term():
    links = {str(tag["href"]): tag.text for tag in site.parsed("genindex.html").select("article a[href]")}
    assert links["chapters/07_transformer.html#term-ablation"] == "7.8"
    for page in site.chapters():
        tags = site.parsed(page).select('a[href*="glossary.html#term-"]')
        terms = {str(tag["href"]).partition("#term-")[2] for tag in tags}
        assert {f"{page}#term-{term.lower()}" for term in terms} <= {link.lower() for link in links}, page


def test_the_search_knows_every_word_of_prose_and_every_name_of_code():
    index = json.loads(zlib.decompress((site.HTML / "_static" / "sections.bin").read_bytes()).decode("gb18030"))
    known = {word for _, held in index["pages"] for section in held for word in sections.words_of(" ".join(section))}
    for page in site.chapters():
        for section in sections.sections_of((site.HTML / page).read_text(encoding="utf-8")):
            assert set(sections.words_of(" ".join(section[1:]))) <= known, page
