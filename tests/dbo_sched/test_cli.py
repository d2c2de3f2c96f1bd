"""The command line: what it prints and what it writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dbo_sched.json_form import from_json
from dbo_sched.text import from_text

REPO = Path(__file__).parents[2]
SMALL = ["--layers", "5"]


def test_readmes_comparison_is_what_the_command_prints(run):
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    command = "compare --model deepseek-v3 --system h100 --nodes 4 --tokens 8192"
    code, out, _ = run(*command.split())
    shown = re.search(rf"\$ dbo-sched {command}\n(.*?)```", readme, re.DOTALL)[1]
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == shown.splitlines()


def test_readmes_other_outputs_and_snippets_are_true(run, tmp_path):
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    _, out, _ = run("schedules")
    listed = [line for line in out.splitlines() if "tests." not in line]
    shown = re.search(r"\$ dbo-sched schedules\n(.*?)```", readme, re.DOTALL)[1].splitlines()
    assert [line for line in shown if line not in listed] == []
    assert (REPO / "examples/by-hand.txt").read_text(encoding="utf-8") in readme
    snippets = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    script = tmp_path / "snippets.py"
    script.write_text("\n".join(snippets) + '\nprint(build_program(workload, "my-dbo").hash)\n')
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    makespan, digest = done.stdout.split()
    assert makespan == "809086504"
    assert re.fullmatch("[0-9a-f]{12}", digest)


def test_compare_writes_picture_trace_and_program_of_each(run, tmp_path):
    code, out, _ = run(
        *(
            "compare",
            "--nodes",
            4,
            "--schedules",
            "sequential,dbo-ht",
            "--out",
            tmp_path / "o",
            *SMALL,
        )
    )
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        *(f"dbo-ht{end}" for end in (".png", ".program.txt", ".trace.json")),
        *(f"sequential{end}" for end in (".png", ".program.txt", ".trace.json")),
        "timelines.png",
    ]
    program = from_text((tmp_path / "o/dbo-ht.program.txt").read_text())
    assert (program.schedule, program.ranks) == ("dbo-ht", 32)
    trace = json.loads((tmp_path / "o/dbo-ht.trace.json").read_text())
    assert trace["otherData"]["program"] == program.hash
    assert "--schedules sequential,dbo-ht" not in out


def test_compare_as_json(run):
    code, out, _ = run(
        "compare", "--nodes", 4, "--json", *SMALL, "--schedules", "dbo-ht,sequential"
    )
    document = json.loads(out)
    assert code == 0
    by_name = {entry["schedule"]: entry for entry in document["schedules"]}
    assert list(by_name) == ["dbo-ht", "sequential"]
    fast, slow = by_name["dbo-ht"], by_name["sequential"]
    assert fast["gain"] == pytest.approx(slow["step_ns"] / fast["step_ns"])
    assert (slow["gain"], slow["hidden_percent"], slow["ubatches"]) == (1.0, 0.0, 1)
    assert fast["moe_layer_ns"] < slow["moe_layer_ns"]
    assert document["workload"]["deployment"]["ep"] == 32


def test_gain_is_over_sequential_even_when_it_is_not_listed(run):
    _, out, _ = run("compare", "--nodes", 4, "--json", *SMALL, "--schedules", "dbo-ht")
    _, both, _ = run("compare", "--nodes", 4, "--json", *SMALL, "--schedules", "dbo-ht,sequential")
    alone = json.loads(out)["schedules"][0]
    assert alone == json.loads(both)["schedules"][0]


def test_plan_in_both_forms(run, tmp_path):
    _, text, _ = run("plan", "dbo-ht", "--nodes", 4, "--ubatches", 3, *SMALL)
    _, as_json, _ = run("plan", "dbo-ht", "--nodes", 4, "--ubatches", 3, *SMALL, "--json")
    assert from_text(text) == from_json(as_json.encode())
    assert len(from_text(text).plans[0].ubatches) == 3
    code, out, _ = run("plan", "dbo-ht", "--nodes", 4, *SMALL, "-o", tmp_path / "a/p.json")
    assert code == 0
    program = from_json((tmp_path / "a/p.json").read_bytes())
    assert program.hash in out


def test_simulate_a_file_and_a_schedule_alike(run, tmp_path):
    path = tmp_path / "p.txt"
    run("plan", "dbo-ht", "--nodes", 4, *SMALL, "-o", path)
    code, from_file, _ = run("simulate", path, "--json")
    _, from_schedule, _ = run("simulate", "--schedule", "dbo-ht", "--nodes", 4, *SMALL, "--json")
    assert code == 0
    metrics = json.loads(from_file)["metrics"]
    assert metrics == json.loads(from_schedule)["metrics"]
    assert metrics["step_ns"] > 0


def test_simulate_writes_what_it_is_asked_for(run, tmp_path):
    names = [tmp_path / name for name in ("t.png", "t.trace.json", "t.json")]
    code, out, _ = run(
        *("simulate", REPO / "examples/by-hand.txt", "--skew", "1=30"),
        *("--png", names[0], "--trace", names[1], "-o", names[2]),
    )
    assert code == 0
    assert all(path.stat().st_size > 100 for path in names)
    assert "peer wait without compute" in out
    code, shown, _ = run("show", names[2])
    assert code == 0
    assert shown.splitlines()[:10] == out.splitlines()[:10]


def test_deadlock_is_exit_code_1_and_one_line(run, tmp_path):
    path = tmp_path / "p.txt"
    path.write_text(
        "program v1 ranks=2\ncomm ep\nplan ranks=0\nop d kind=dispatch comm=ep ns=data:1\n"
        "u0 launch d a2a\nplan ranks=1\nop a kind=x ns=run:1\nu0 launch a\n"
    )
    code, out, err = run("simulate", path)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "d (data) on rank 0 waits for rank 1, which never launches it" in err


def test_show_fits_one_layer_period_on_a_screen(run, tmp_path):
    path = tmp_path / "p.txt"
    run("plan", "dbo-ht", "--nodes", 4, "-o", path)
    code, out, _ = run("show", path)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 44
    assert lines[1].split() == ["u0", "launch", "L30.u0.attention", "compute"]
    assert lines[-2].split() == ["u0", "launch", "L30.u0.merge", "compute"]
    _, memory, _ = run("show", path, "--memory", "--layer", 30)
    assert len(memory.splitlines()) > 44
    _, everything, _ = run("show", path, "--all")
    first, rest = path.read_text().split("\n", 1)
    assert everything == rest
    assert re.fullmatch(r"# dbo-sched 0\.1\.0, program [0-9a-f]{12}: dbo-sched .*", first)


def test_schedules_tell_their_options(run):
    code, out, _ = run("schedules", "dbo-ht")
    assert code == 0
    assert "Steady period per layer" in out
    _, out, _ = run("schedules", "--json")
    known = {entry["name"]: entry for entry in json.loads(out)}
    assert (known["dbo-ht"]["least_ubatches"], known["shared-overlap"]["most_ubatches"]) == (2, 1)


def test_version_and_help(run):
    assert run("--version")[1].strip() == "0.1.0"
    for command in ("compare", "plan", "simulate", "show", "schedules"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert out.startswith(f"Usage: dbo-sched {command}")
