"""The repository's address is set in _config.yml; every other mention agrees with it. So do versions and licences."""

import re
import tomllib

import pytest
import yaml

import attn_core
from tests.book.built_site import ROOT, repository, settings
from tests.book.notebooks import launch_cell
from website.repository import files, readdressed

# An address of a repository on GitHub, up to its name.
ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w-]+")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_address_is_one():
    assert ADDRESS.fullmatch(repository())
    assert project()["urls"]["Repository"] == repository()
    assert citation()["repository-code"] == repository()
    assert f'"{repository()}"' in launch_cell()
    for name in ("README.md", "index.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f"git clone {repository()}\n" in text, name


def test_the_site_s_address_is_the_repository_s_page():
    owner, name = repository().removeprefix("https://github.com/").split("/")
    config = settings()["sphinx"]["config"]
    assert config["html_baseurl"] == config["ogp_site_url"] == f"https://{owner}.github.io/{name}/"
    assert config["notfound_urls_prefix"] == f"/{name}/"
    assert set(re.findall(r'href="([^"]+)"', config["notfound_context"]["body"])) == {f"/{name}/index.html"}


def test_a_fork_gets_its_own_address_everywhere():
    theirs = "https://github.com/some-school/our-course"
    for path in files():
        text = path.read_text(encoding="utf-8")
        moved = readdressed(text, repository(), theirs)
        assert readdressed(moved, theirs, repository()) == text, path
        assert not re.search(r"attention-book(/attention-book|\.github\.io)", moved), path
        assert ("some-school/our-course" in moved) == (repository().removeprefix("https://github.com/") in text), path


@pytest.mark.parametrize("url", ["github.com/a/b", "https://example.org/a/b", "https://github.com/a"])
def test_an_address_of_another_form_is_refused(url):
    with pytest.raises(ValueError, match="^URL: expected"):
        readdressed("", repository(), url)


def test_versions_and_licences_agree():
    assert project()["version"] == citation()["version"] == attn_core.__version__
    assert project()["license"] == citation()["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert "CC BY 4.0" in (ROOT / "LICENSE-TEXT").read_text(encoding="utf-8")
    assert f"## {attn_core.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
