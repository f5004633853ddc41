"""Class lists and downloads, as nbgrader, Canvas and Moodle write them."""

import csv
import shutil
import zipfile

import pytest

from exercises.gradebook import open_gradebook, write_canvas, write_csv
from exercises.roster import Student, add_class, collect, main, read_class

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Essay (17)
    Points Possible,,,,,10
,,,,,Manual Posting
"Lovelace, Ada",101,S1,ada,A,
"Turing, Alan",102,S2,alan,A,9
"Student, Test",999,,x,A,
"""
MOODLE = "First name,Last name,ID number,Email address\nAda,Lovelace,ada,ada@example.org\nAlan,Turing,alan,\n"
PLAIN = "id,last_name,first_name,email,lms_user_id\nada,Lovelace,Ada,ada@example.org,101\nalan,Turing,Alan,,102\n\n"


@pytest.fixture
def listed(tmp_path):
    def write(text):
        path = tmp_path / "class.csv"
        path.write_text(text, encoding="utf-8")
        return read_class(path)

    return write


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A gradebook, which takes a slow disk seconds to make."""
    folder = tmp_path_factory.mktemp("made")
    with open_gradebook(folder) as book:
        add_class(book, [Student("ada", "Ada", "Lovelace", "", "101"), Student("alan", "Alan", "Turing", "", "102")])
    return folder / "gradebook.db"


@pytest.fixture
def book(made, tmp_path):
    shutil.copy(made, tmp_path)
    with open_gradebook(tmp_path) as book:
        yield book


@pytest.mark.parametrize("text", [CANVAS, MOODLE, PLAIN, "\ufeff" + PLAIN], ids=["Canvas", "Moodle", "plain", "mark"])
def test_three_kinds_of_class_list_say_the_same(listed, text):
    found = listed(text)
    assert [(one.id, one.first_name, one.last_name) for one in found] == [
        ("ada", "Ada", "Lovelace"),
        ("alan", "Alan", "Turing"),
    ]
    if "101" in text:
        assert [one.lms_user_id for one in found] == ["101", "102"]


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "name,points\na,1\n",
            "class.csv: expected a column id, SIS Login ID, Username, ID number or Email address, got name, points",
        ),
        ("", "got none"),
        ("id\nada\n\n../x\n", "class.csv, line 4: expected an id of at most 100 letters"),
        ("id,email\n,\n,x/y\n", "line 3: expected an id"),
        ("id\n.ssh\n", "line 2: expected an id"),
        (f"id\n{'a' * 300}\n", "line 2: expected an id of at most 100 letters"),
        ("id\nada\nada\n", "expected each id once, got ada more than once"),
    ],
)
def test_a_class_list_that_is_wrong_is_refused_and_says_where(listed, text, message):
    with pytest.raises(ValueError) as caught:
        listed(text)
    assert message in str(caught.value)


SPREADSHEET = "Nachname;Vorname;E-Mail-Adresse\nMüller;Zoë;zoe@example.org\nLovelace;Ada;ada@example.org\n"


@pytest.mark.parametrize(
    "data",
    [
        SPREADSHEET.encode("cp1252"),
        SPREADSHEET.encode("utf-16"),
        SPREADSHEET.encode("utf-16-le"),
        SPREADSHEET.replace("\n", "\r\n").encode("utf-8-sig"),
        ("sep=;\r\n" + SPREADSHEET).encode(),
        SPREADSHEET.replace(";", "\t").encode(),
        SPREADSHEET.replace("Nachname", "ID-Nummer;Nachname").replace("Mü", ";Mü").replace("Lov", ";Lov").encode(),
    ],
    ids=["cp1252", "UTF-16", "no mark", "Windows", "Excel's first line", "tabs", "empty ids"],
)
def test_a_list_that_a_spreadsheet_has_saved_is_read_and_the_address_serves_as_id(tmp_path, data):
    (tmp_path / "class.csv").write_bytes(data)
    zoe, ada = read_class(tmp_path / "class.csv")
    assert (zoe.id, zoe.first_name, zoe.last_name, ada.id) == ("zoe@example.org", "Zoë", "Müller", "ada@example.org")


@pytest.mark.parametrize(
    "data, said",
    [
        (b"PK\3\4xx", "got a workbook"),
        (b"id\n\x81\x8d\xe4\n", "expected text as UTF-8, UTF-16 or Windows-1252"),
        (b"id\na\0b\n", "line 2: expected an id|line contains NUL"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path, data, said):
    (tmp_path / "class.csv").write_bytes(data)
    with pytest.raises(ValueError, match=f"^class.csv.*({said})"):
        read_class(tmp_path / "class.csv")


def test_importing_a_class_twice_changes_what_has_changed(book):
    add_class(book, [Student("ada", "Augusta", "Lovelace"), Student("grace", "Grace", "Hopper")])
    assert {one.id: one.first_name for one in book.students} == {"ada": "Augusta", "alan": "Alan", "grace": "Grace"}


def archive(tmp_path, members):
    path = tmp_path / "download.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in members.items():
            file.writestr(name, text)
    return path


def test_a_download_of_canvas_is_sorted_by_student_and_the_latest_counts(book, tmp_path):
    members = {
        "lovelaceada_101_500_01_pooling.ipynb": "first",
        "lovelaceada_LATE_101_501_Copy of 01_pooling-1.ipynb": "second",
        "turingalan_102_77_x.ipynb": "his",
        "nobody_404_78_x.ipynb": "?",
        "turingalan_102_78_notes.pdf": "?",
    }
    done, left = collect(book, archive(tmp_path, members), "pooling", tmp_path / "submitted")
    assert done == ["ada", "alan"]
    assert (tmp_path / "submitted/ada/pooling/pooling.ipynb").read_text() == "second"
    assert (tmp_path / "submitted/alan/pooling/pooling.ipynb").read_text() == "his"
    nobody, other, twice = left
    assert "belongs to nobody in the class list" in nobody and other.endswith("notes.pdf: left out, not a notebook")
    assert twice == f"ada: {[*members][1]} counts, not {[*members][0]}"


def test_of_two_files_the_one_named_after_the_assignment_counts_and_this_is_said(book, tmp_path):
    members = {"lovelaceada_101_5_01_pooling.ipynb": "hers", "lovelaceada_101_6_scratch.ipynb": "not this"}
    _, notes = collect(book, archive(tmp_path, members), "01_pooling", tmp_path / "submitted")
    assert (tmp_path / "submitted/ada/01_pooling/01_pooling.ipynb").read_text() == "hers"
    assert notes == [f"ada: {[*members][0]} counts, not {[*members][1]}"]


@pytest.mark.parametrize(
    "name, owner",
    [
        ("lovelaceada_101_5_a.ipynb.txt", "ada"),
        ("lovelaceada_101_5_a.ipynb.json", "ada"),
        ("lovelaceada_101_5_A.IPYNB", "ada"),
        ("some_group_101_5_a.ipynb", "ada"),
        ("group_1_101_5_2_a.ipynb", "ada"),
        ("Lovelace Ada_7_assignsubmission_file_/a.ipynb", "ada"),
        ("Group B-Ada Lovelace_7_assignsubmission_file_/a.ipynb", "ada"),
        ("Müller, Zoë-Lou_7_assignsubmission_file_a.ipynb", "zoe"),
        ("Zoe\u0308-Lou Mu\u0308ller_7_assignsubmission_file_/a.ipynb", "zoe"),
        ("test_student_999_5_a.ipynb", None),
        ("nobody_404_78_102_5_a.ipynb", None),
        ("lovelaceada_101_5_a.zip", None),
    ],
)
def test_names_are_read_as_platforms_write_them(book, tmp_path, name, owner):
    add_class(book, [Student("zoe", "Zoë-Lou", "Müller")])
    done, notes = collect(book, archive(tmp_path, {name: "x"}), "p", tmp_path / "submitted")
    assert (done, len(notes)) == (([owner], 0) if owner else ([], 1))
    assert owner or ("not a notebook" if "zip" in name else "nobody") in notes[0]


def test_a_download_that_was_unpacked_and_packed_again_is_read(book, tmp_path):
    for inside in ("turingalan_102_5_a.ipynb", "Alan Turing_8_assignsubmission_file_/a.ipynb"):
        members = {f"submissions/{inside}": "x", "__MACOSX/submissions/._a.ipynb": "?", "submissions/.DS_Store": "?"}
        assert collect(book, archive(tmp_path, members), "p", tmp_path / "submitted") == (["alan"], [])


def test_nothing_collected_is_an_error_and_a_name_is_no_command_to_the_terminal(book, tmp_path, monkeypatch, capsys):
    (tmp_path / "source/p").mkdir(parents=True)
    (tmp_path / "source/p/p.ipynb").touch()
    path = archive(tmp_path, {"x\x1b[2J_404_5_a.ipynb": "?"})
    monkeypatch.setattr("sys.argv", ["make", "--course", str(tmp_path), "collect", "p", str(path)])
    with pytest.raises(SystemExit, match="download.zip: nothing was collected"):
        main()
    assert "x\\x1b[2J_404" in capsys.readouterr().out


def test_an_assignment_that_there_is_not_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "source/p").mkdir(parents=True)
    (tmp_path / "source/p/p.ipynb").touch()
    path = archive(tmp_path, {"lovelaceada_101_5_a.ipynb": "hers"})
    monkeypatch.setattr("sys.argv", ["make", "--course", str(tmp_path), "collect", "q", str(path)])
    with pytest.raises(SystemExit, match="assignment: expected one of p, got 'q'"):
        main()
    assert not (tmp_path / "submitted").exists()


def test_no_name_becomes_a_formula(book, tmp_path):
    add_class(book, [Student("eve", "=1+1", "@x", "-a@example.org")])
    for write in (write_csv, write_canvas):
        write(book, tmp_path / "grades.csv")
        text = (tmp_path / "grades.csv").read_text()
        assert "@x" in text and not any(
            value.startswith(tuple("=+-@")) for row in csv.reader(text.splitlines()) for value in row
        )


def test_a_download_of_moodle_is_sorted_by_name(book, tmp_path):
    members = {
        "Ada Lovelace_7_assignsubmission_file_/pooling.ipynb": "folder",
        "Alan Turing_8_assignsubmission_file_pooling.ipynb": "flat",
        "Alan Smith_9_assignsubmission_file_/pooling.ipynb": "?",
    }
    done, left = collect(book, archive(tmp_path, members), "pooling", tmp_path / "submitted")
    assert done == ["ada", "alan"] and left == [
        "Alan Smith_9_assignsubmission_file_/pooling.ipynb: left out, belongs to nobody in the class list"
    ]
    assert (tmp_path / "submitted/alan/pooling/pooling.ipynb").read_text() == "flat"


def test_two_students_of_one_name_are_not_guessed_at(book, tmp_path):
    add_class(book, [Student("ada2", "Ada", "Lovelace")])
    done, left = collect(
        book, archive(tmp_path, {"Ada Lovelace_7_assignsubmission_file_/p.ipynb": "x"}), "p", tmp_path / "s"
    )
    assert done == [] and left == ["Ada Lovelace_7_assignsubmission_file_/p.ipynb: left out, could be from ada or ada2"]


def test_nothing_is_written_elsewhere_and_nothing_too_large(book, tmp_path, monkeypatch):
    monkeypatch.setattr("exercises.roster.LARGEST", 10)
    members = {
        "../../turingalan_102_1_x.ipynb": "up",
        "turingalan_102_1_..\\..\\x.ipynb": "his",
        "lovelaceada_101_2_bomb.ipynb": "0" * 100_000,
    }
    done, notes = collect(book, archive(tmp_path, members), "p", tmp_path / "submitted")
    assert done == ["alan"] and any("larger than" in note for note in notes)
    written = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.ipynb")]
    assert written == ["submitted/alan/p/p.ipynb"]


def test_the_name_that_a_student_gave_a_file_makes_it_nobody_else_s(book, tmp_path):
    members = {"Ada Lovelace_6_assignsubmission_file_/x_102_999_a.ipynb": "hers", "turingalan_102_1_b.ipynb": "his"}
    done, _ = collect(book, archive(tmp_path, members), "p", tmp_path / "submitted")
    assert done == ["ada", "alan"]
    assert (tmp_path / "submitted/ada/p/p.ipynb").read_text() == "hers"
    assert (tmp_path / "submitted/alan/p/p.ipynb").read_text() == "his"


def changed(data, name, at, change):
    """The archive with the bytes ``at`` so many after the start of a member's entry in its directory changed."""
    place, found = data.rindex(name.encode()) - 46, bytearray(data)
    assert found[place : place + 4] == b"PK\1\2"
    found[place + at : place + at + len(change)] = change
    return bytes(found)


@pytest.mark.parametrize(
    "at, change, said",
    [
        (8, b"\1\0", "is encrypted, password required"),
        (10, b"\x63\0", "packed in another way than by deflate"),
        (24, b"\5\0\0\0", "Bad CRC-32"),
        (24, b"\0\0\0\x7f", "larger than"),
        (42, b"\xff\xff\0\0", "Truncated file header"),
    ],
    ids=["encrypted", "packed in another way", "holds more than it claims", "claims gigabytes", "lies elsewhere"],
)
def test_a_hostile_upload_costs_the_others_nothing(book, tmp_path, at, change, said):
    name = "lovelaceada_101_2_a.ipynb"
    path = archive(tmp_path, {name: "a" * 50, "turingalan_102_3_b.ipynb": "his"})
    path.write_bytes(changed(path.read_bytes(), name, at, change))
    done, notes = collect(book, path, "p", tmp_path / "submitted")
    assert done == ["alan"] and len(notes) == 1
    assert notes[0].startswith(f"{name}: left out, ") and said in notes[0]
    assert not (tmp_path / "submitted/ada").exists()


def test_a_link_in_an_archive_is_its_text_and_leads_nowhere(book, tmp_path):
    (tmp_path / "secret").write_text("the teacher's")
    path = tmp_path / "download.zip"
    with zipfile.ZipFile(path, "w") as file:
        link = zipfile.ZipInfo("lovelaceada_101_2_a.ipynb")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        file.writestr(link, str(tmp_path / "secret"))
    assert collect(book, path, "p", tmp_path / "submitted") == (["ada"], [])
    written = tmp_path / "submitted/ada/p/p.ipynb"
    assert not written.is_symlink() and written.read_text() == str(tmp_path / "secret")


def test_a_later_notebook_takes_the_place_of_an_earlier_one_and_this_is_said(book, tmp_path):
    for text, said in (
        ("one", []),
        ("one", []),
        ("two", ["ada: another notebook was collected before; this one takes its place"]),
    ):
        _, notes = collect(book, archive(tmp_path, {"lovelaceada_101_2_a.ipynb": text}), "p", tmp_path / "submitted")
        assert notes == said
    assert (tmp_path / "submitted/ada/p/p.ipynb").read_text() == "two"


def test_a_file_that_is_no_archive_is_refused(book, tmp_path):
    whole = archive(tmp_path, {"lovelaceada_101_2_a.ipynb": "hers"}).read_bytes()
    directory = whole.index(b"PK\1\2")
    for content in (
        b"no",
        b"",
        whole[:-10],
        whole[: len(whole) // 2],
        whole[:directory] + b"no" + whole[directory + 2 :],
    ):
        (tmp_path / "a.zip").write_bytes(content)
        with pytest.raises(ValueError, match="^download: expected a zip archive, got a.zip: "):
            collect(book, tmp_path / "a.zip", "p", tmp_path / "submitted")
        assert not (tmp_path / "submitted").exists()
