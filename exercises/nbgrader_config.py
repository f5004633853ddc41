"""nbgrader's settings for this course; nbgrader reads them in this folder."""

from pathlib import Path

c = get_config()  # noqa: F821 (nbgrader gives it)

c.CourseDirectory.root = str(Path(__file__).parent)
c.CourseDirectory.course_id = "attention"
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError  # your code instead of this line"}
c.ClearSolutions.text_stub = "*Your answer.*"
