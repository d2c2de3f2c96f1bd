"""The command line: what it prints, what it writes, and how it says no."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dbo_sched import registry
from dbo_sched.cli import main
from dbo_sched.json_form import from_json
from dbo_sched.text import from_text

REPO = Path(__file__).parents[2]
SMALL = ["--layers", "5"]


@pytest.fixture
def run(capsys):
    """Run a command; returns exit code, standard output and standard error."""

    def call(*arguments):
        code = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


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
    assert makespan == "837093457"
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
    assert len(lines) == 43
    assert lines[1].split() == ["u0", "launch", "L30.u0.attention", "compute"]
    assert lines[-1].split() == ["u0", "launch", "L30.u0.merge", "compute"]
    _, memory, _ = run("show", path, "--memory", "--layer", 30)
    assert len(memory.splitlines()) > 43
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


BAD = [
    (["compere"], "compere"),
    (["compare", "--model", "deepseek-v4"], "model 'deepseek-v4' is not known"),
    (["compare", "--system", "h800"], "system 'h800' is not known"),
    (["compare", "--nodes", "8"], "no row for h100, 8 nodes, 64 ranks"),
    (["compare", "--nodes", "0"], "--nodes: 0 is not possible"),
    (["compare", "--tokens", "many"], "many"),
    (["compare", "--tokens", "-5"], "--tokens: -5 is not possible"),
    (["compare", "--schedules", "dbo"], "schedule 'dbo' is not known"),
    (["compare", "--ubatches", "0"], "--ubatches: 0 is not possible"),
    (["compare", "--comm-sms", "5"], "5 communication SMs are not possible"),
    (["compare", "--layers", "62"], "deepseek-v3 has 61 layers, not 62"),
    (["simulate", "--costs", "guess"], "guess"),
    (["compare", "--math-efficiency", "nan"], "math_efficiency is nan"),
    (["compare", "--connections", "0"], "connections is 0"),
    (["compare", "--out", "/proc/none/here"], "/proc/none/here"),
    (["plan"], "SCHEDULE"),
    (["plan", "dbo-ht", "--set", "x"], "'x' is not name=value"),
    (["plan", "dbo-ht", "--set", "x=1"], "schedule 'dbo-ht' has no option 'x'"),
    (["plan", "dbo-ht", "--ubatches", "1"], "'dbo-ht' takes 2 to 64 ubatches, not 1"),
    (["simulate"], "give one program: a file, or a schedule"),
    (["simulate", "p.txt", "--schedule", "dbo-ht"], "give one program"),
    (["simulate", "p.txt", "--nodes", "2"], "--nodes has no effect on a program from a file"),
    (["simulate", "p.txt"], "p.txt: cannot be read: No such file"),
    (["simulate", "."], "cannot be read: Is a directory"),
    (["simulate", "--schedule", "dbo-ht", "--skew", "x"], "'x' is not RANK=US"),
    (["simulate", "--schedule", "dbo-ht", "--skew", "99=1"], "rank 99 does not exist"),
    (["simulate", "--schedule", "dbo-ht", "--costs", "fixed"], "has no duration"),
    (["simulate", "--schedule", "dbo-ht", "--rank", "1"], "no picture to apply it to"),
    (["show", "p.txt"], "p.txt: cannot be read"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("dbo-sched: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF\0\0", "neither a program nor a timeline"),
        (b"program v1\n\xff\xfe", "not UTF-8 text"),
        (b"", "empty"),
        (b"hello", "neither a program nor a timeline"),
        (b'{"version": 1, "plans": [', "not a program: Input data was truncated"),
        (b'{"header": {"backend": 3}}', "not a timeline"),
    ],
)
def test_bad_files_are_named(run, tmp_path, data, message):
    path = tmp_path / "p"
    path.write_bytes(data)
    code, _, err = run("simulate", path)
    assert code == 2
    assert f"{path}" in err
    assert message in err


def test_a_failed_write_leaves_nothing_behind(run, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    code, _, err = run("plan", "dbo-ht", *SMALL, "-o", tmp_path / "p.txt")
    assert code == 2
    assert "cannot be written: No space left on device" in err
    assert list(tmp_path.iterdir()) == []


def test_foreign_schedules_come_through_entry_points(run, tmp_path, monkeypatch):
    (tmp_path / "their_schedules.py").write_text(
        "from dbo_sched import schedule\n\n\n"
        "@schedule('theirs', least=1)\n"
        "def theirs(u):\n"
        '    """All of it, in data order."""\n'
        "    for layer in u.layers:\n"
        "        for op in layer.ops:\n"
        "            u.launch(op)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    group = registry.ENTRY_POINTS
    found = [
        EntryPoint("theirs", "their_schedules", group),
        EntryPoint("broken", "no_such_module_here", group),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    monkeypatch.setattr(registry, "_broken", None)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    code, out, err = run("schedules")
    assert code == 0
    assert "theirs" in out and "All of it, in data order." in out
    assert "schedules of no_such_module_here are left out: ModuleNotFoundError" in err
    code, out, _ = run("compare", "--nodes", 4, *SMALL, "--schedules", "theirs", "--json")
    assert json.loads(out)["schedules"][0]["gain"] == pytest.approx(1, abs=0.02)


def python(code, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=environment
    )


def test_a_foreign_module_named_sim_is_refused_by_its_file(tmp_path):
    (tmp_path / "sim.py").write_text("x = 1\n")
    done = python("from dbo_sched.cli import main; raise SystemExit(main(['compare']))", tmp_path)
    assert done.returncode == 2
    assert f"module 'sim' is not dbo-sched's: it was found at {tmp_path}/sim.py" in done.stderr


def test_import_loads_no_heavy_package(tmp_path):
    heavy = "{'networkx', 'matplotlib', 'simpy', 'numpy', 'torch', 'cyclopts', 'sim', 'hw'}"
    done = python(f"import sys, dbo_sched; print({heavy} & set(sys.modules))", tmp_path)
    assert done.stdout == "set()\n"
    done = python(
        f"import sys, dbo_sched, sim; print(({heavy} - {{'sim', 'simpy'}}) & set(sys.modules))",
        tmp_path,
    )
    assert done.stdout == "set()\n"


def test_links_are_followed_and_other_modes_kept(run, tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    code, _, _ = run("plan", "dbo-ht", *SMALL, "-o", link)
    assert code == 0
    assert link.is_symlink()
    assert from_text(target.read_text()).schedule == "dbo-ht"


def test_devices_and_pipes_are_written_to_and_read_from(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = "import sys; from dbo_sched.cli import main; raise SystemExit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code]
    plan = [*command, "plan", "dbo-ht", *SMALL, "-o", str(pipe)]
    with subprocess.Popen(plan, stdout=subprocess.PIPE, text=True) as writer:
        shown = subprocess.run([*command, "show", str(pipe)], capture_output=True, text=True)
        assert "wrote" in writer.stdout.read()
    assert shown.stdout.startswith("dbo-ht ")
    assert pipe.is_fifo()
    text = (REPO / "examples/by-hand.txt").read_text()
    piped = subprocess.run(
        [*command, "show", "/dev/stdin"], input=text, capture_output=True, text=True
    )
    assert piped.stdout.startswith("by-hand ")


def test_one_failed_file_leaves_all_unwritten(run, tmp_path):
    code, out, err = run(
        *("simulate", REPO / "examples/by-hand.txt", "--png", tmp_path / "t.png"),
        *("--trace", "/proc/none/t.json"),
    )
    assert (code, out) == (2, "")
    assert "/proc/none/t.json: cannot be written" in err
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_never_cut_on_a_narrow_terminal(run, monkeypatch):
    wide = run("compare", *SMALL)[1]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    narrow = run("compare", *SMALL)[1]
    numbers = re.findall(r"[\d,]+\.\d+", wide)
    assert numbers == re.findall(r"[\d,]+\.\d+", narrow)
    assert "…" not in narrow


MORE_BAD = [
    (["compare", "--schedules", ","], "no schedule is named"),
    (["compare", "--ubatches", "1"], "1 is not possible: overlap takes 2 ubatches or more"),
    (["compare", "--ubatches", "65"], "takes 2 to 64 ubatches, not 65"),
    (["compare", "--nodes", "1.5"], "--nodes"),
    (["compare", "--tokens", "1000000000000"], "1000000000000 tokens per rank are not possible"),
    (["compare", "--sms", "0"], "sms is 0"),
    (["compare", "--model", "deepseek-v3.2"], "model 'deepseek-v3.2' is not known"),
    (["simulate", "--schedule", "dbo-ht", "--skew", "1=nan"], "a time of nan us"),
    (["simulate", "--schedule", "dbo-ht", "--skew", "1=1,1=2"], "or names a rank again"),
    (["simulate", "--schedule", "dbo-ht", "--limit-us", "-5"], "a time of -5.0 us"),
    (["simulate", "--schedule", "dbo-ht", "--png", "a", "--trace", "a"], "two results go to one"),
    (
        ["simulate", "--schedule", "dbo-ht", "--costs", "fixed", "--math-efficiency", "0.5"],
        "fixed costs have no roofline",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MORE_BAD, ids=[" ".join(a) for a, _ in MORE_BAD])
def test_impossible_values_are_refused(run, tmp_path, monkeypatch, arguments, message):
    test_bad_input_is_one_line_and_exit_code_2(run, tmp_path, monkeypatch, arguments, message)


def test_a_program_without_its_ubatches_is_refused(run, tmp_path):
    """Without them attention would cost nothing, and the step would look fast."""
    path = tmp_path / "p.txt"
    run("plan", "dbo-ht", *SMALL, "-o", path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("ubatch")))
    code, _, err = run("simulate", path)
    assert code == 2
    assert "op 'L0.u0.attention' is of ubatch 0, and the plan declares 0 ubatches" in err


def test_weights_that_do_not_fit_are_pointed_out(run):
    """58 x 33 experts of 44.0 M, 61 attentions of 187.1 M, 3 dense layers of 396.4 M: 96.9 GB."""
    _, out, _ = run("compare", "--nodes", 1, "--schedules", "dbo-ht")
    assert "DOES NOT FIT: the layers' weights take 97 GB of each GPU, and h100 has 80 GB" in out
    _, out, _ = run("compare", "--nodes", 4, "--schedules", "dbo-ht")
    assert "DOES NOT FIT" not in out


@pytest.mark.parametrize("command", [["--help"], ["compare", "--layers", "4"], ["schedules"]])
def test_output_that_nobody_takes(command):
    code = "import sys; from dbo_sched.cli import main; raise SystemExit(main(sys.argv[1:]))"
    call = [sys.executable, "-c", code, *command]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "No space left" in done.stderr
    shell = f'"{sys.executable}" -c "{code}" {" ".join(command)} >&-'
    done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "standard output is closed" in done.stderr
