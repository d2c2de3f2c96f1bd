"""Fixtures that several test files share."""

import pytest

from dbo_sched.cli import main


@pytest.fixture
def run(capsys):
    """Run a command; returns exit code, standard output and standard error."""

    def call(*arguments):
        code = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
