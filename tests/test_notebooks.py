"""The notebooks run from top to bottom and show what they say."""

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def executed(request):
    notebook = jupytext.read(request.param)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return request.param.stem, notebook


def outputs(notebook, kind):
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def printed(notebook):
    found = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.get("name")]
    assert {output["name"] for output in found} == {"stdout"}  # no warnings
    return "".join(output["text"] for output in found)


def test_plans_and_timelines_display_themselves(executed):
    name, notebook = executed
    assert name == "01_explore_schedules"
    assert len(outputs(notebook, "image/png")) == 5
    html = outputs(notebook, "text/html")
    assert "u0  launch     L30.u0.dispatch        a2a" in html[0]
    assert html[1].count("<tr>") == 1 + 3  # a heading and three schedules
    assert all("<table>" in table for table in html[1:])


def test_what_the_text_says_is_what_comes_out(executed):
    _, notebook = executed
    text = printed(notebook)
    assert "fastest is dbo-ht with 2 ubatches" in text
    assert "fastest is sequential with one ubatch" in text  # the small batch
    assert "step if 10 % faster: host" in text
    last = outputs(notebook, "text/html")[-1]
    assert "early-combine" in last
