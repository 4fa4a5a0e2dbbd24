"""From a CSV file to predictions and a push, by the commands of docs/own_data.md alone: make job."""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, run_anew
from hub_server import HubServer
from page_blocks import BLOCK, run_block

PAGE = ROOT / "docs" / "own_data.md"


@pytest.mark.examples
def test_the_job_from_a_file_to_a_private_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is a process of its own, as in a terminal; the last one is run again with ``--execute``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    times: dict[str, float] = {}
    with HubServer() as hub:
        variables = hub.environment(tmp_path / "home")
        for language, file, block in BLOCK.findall(PAGE.read_text()):
            if file:
                Path(file).write_text(block)
            elif language == "python":
                run_block(block, str(PAGE), {"__name__": "page"})
            for command in block.splitlines() if language == "sh" else []:
                start = time.monotonic()
                done = run_anew(shlex.split(command), cwd=tmp_path, **variables)
                assert done.returncode == 0, (command, done.stderr)
                times[command] = time.monotonic() - start
        own = command.replace(" me/", f" {hub.user}/")
        done = run_anew([*shlex.split(own), "--execute"], cwd=tmp_path, **variables)
        assert done.returncode == 0, done.stderr
        assert hub.repos["model", f"{hub.user}/tickets"].private
    labeled = Path("labeled.csv").read_text().splitlines()
    assert labeled[0].startswith("message,label,probability")
    with capsys.disabled():
        print("", *(f"{seconds:5.0f} s  {command}" for command, seconds in times.items()), sep="\n")
        print(f"{sum(times.values()):5.0f} s  in all")
