"""How the command line says no: one line, exit code 2, and nothing half-written."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dbo_sched import registry
from dbo_sched.text import from_text

REPO = Path(__file__).parents[2]
SMALL = ["--layers", "5"]


BAD = [
    (["compere"], "compere"),
    (["compare", "--model", "deepseek-v4"], "model 'deepseek-v4' is not known"),
    (["compare", "--system", "h800"], "system 'h800' is not known"),
    (
        ["compare", "--nodes", "8", "--costs", "silicon"],
        "no duration of dispatch with 20 SMs on 8 x 8 h100: deepep_normal.csv has no row for h100 "
        "8x8 h7168 k8 e256; nothing was measured on 8 nodes of h100",
    ),
    (["compare", "--costs", "fixed"], "a workload has no durations of its own"),
    (["compare", "--costs", "guess"], "costs 'guess' are not known; use one of auto, silicon"),
    (["compare", "--costs", "profile:p.json"], "p.json: cannot be read: No such file"),
    (["compare", "--scale", "dispatch"], "'dispatch' is not KIND=FACTOR"),
    (["compare", "--scale", "dispatch=1,dispatch=2"], "'dispatch=2' is not KIND=FACTOR, or given"),
    (["compare", "--scale", "dispatch=-1"], "dispatch is scaled by -1.0"),
    (["compare", "--scale", "host=nan"], "host is scaled by nan"),
    (["compare", "--scale", "a2a=0.5", *SMALL], "no op is of kind a2a; use one of attention"),
    (["compare", "--comm-sms", "8,8"], "--comm-sms: '8,8' is no list of numbers"),
    (["compare", "--comm-sms", "4,...,24"], "'4,...,24' is no list of numbers"),
    (["compare", "--comm-sms", "4,8,...,25"], "'4,8,...,25' is no list of numbers"),
    (["plan", "dbo-ht", "--comm-sms", "8,16"], "--comm-sms: 2 numbers of SMs; give one"),
    (["compare", "--routing", "zipf:x"], "--routing: 'x' is no exponent"),
    (["compare", "--routing", "zipf:99"], "--routing: '99' is no exponent"),
    (["compare", "--routing", "hot.json"], "--routing: 'hot.json': No such file"),
    (["compare", "--seed", "3"], "--seed: nothing is drawn under balanced routing"),
    (["compare", "--batch", "b.json"], "--batch: 'b.json': No such file"),
    (["compare", "--batch", "b.json", "--tokens", "5"], "--tokens has no effect on a batch from a"),
    (["compare", "--context", "-1"], "--context: -1 is not possible; give 0 or more"),
    (["compare", "--dtype", "bf16", "--dispatch-dtype", "fp8"], "dispatched in FP8 to experts"),
    (["compare", "--schedules", "dbo-ht:shared"], "'shared' is not option=value, or given twice"),
    (["compare", "--schedules", "dbo-ht:shared=x", *SMALL], "order 'x' of the shared experts"),
    (["compare", "--schedules", "dbo-ht:late=1"], "schedule 'dbo-ht' has no option 'late'"),
    (["compare", "--nodes", "0"], "--nodes: 0 is not possible"),
    (["compare", "--tokens", "many"], "many"),
    (["compare", "--tokens", "-5"], "--tokens: -5 is not possible"),
    (["compare", "--schedules", "dbo"], "schedule 'dbo' is not known"),
    (["compare", "--ubatches", "0"], "--ubatches: 0 is not possible"),
    (["compare", "--comm-sms", "5"], "5 communication SMs are not possible"),
    (["compare", "--layers", "62"], "deepseek-v3 has 61 layers, not 62"),
    (["simulate", "--schedule", "dbo-ht", "--costs", "guess"], "costs 'guess' are not known"),
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
    *(
        (["simulate", str(REPO / "examples/by-hand.txt"), *flags], "has no effect on a program")
        for flags in (["--costs", "silicon"], ["--memory-efficiency", "0.5"])
    ),
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
    ("flag", "data", "message"),
    [
        ("--batch", "[[4096]]", "Expected `array` of length 2, got 1 - at `$[0][0]`"),
        ("--batch", "[[[4, 0]], [[4, -1]]]", "Expected `int` >= 0 - at `$[1][0][1]`"),
        ("--batch", '{"a": 1}', "Expected `array`, got `object`"),
        ("--batch", "[[[4, 0]], [[4, 0]]]", "2 batches for 32 ranks"),
        ("--batch", "[]", "0 batches for 32 ranks"),
        ("--routing", "[1, 2]", "2 loads, 2 of them above 0; give one finite load for each of"),
        ("--routing", '["a"]', "Expected `float`, got `str` - at `$[0]`"),
        ("--routing", "[", "not JSON: Input data was truncated"),
        ("--costs", "{}", "not a profile: Object missing required field `gpu`"),
    ],
)
def test_bad_values_in_files_are_named(run, tmp_path, flag, data, message):
    path = tmp_path / "f.json"
    path.write_text(data)
    code, out, err = run("compare", flag, f"profile:{path}" if flag == "--costs" else path)
    assert (code, out) == (2, "")
    assert message in err


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
