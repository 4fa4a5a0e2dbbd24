"""From a CSV file to predictions and a push, by the commands of docs/own_data.md alone: make job."""

import json
import os
import re
import shlex
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, run_anew
from hub_server import HubServer
from page_blocks import BLOCK, run_block
from tiny_models import POSITIONS, tiny_model

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


@pytest.mark.examples
def test_the_job_of_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``answers.yaml`` of the page with its commands, on a tiny GPT-2 instead of the one of the Hub."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    page = PAGE.read_text()
    (config,) = (block for _, file, block in BLOCK.findall(page) if file == "answers.yaml")
    (tmp_path / "answers.yaml").write_text(config)
    asked = [f"Where is my order {number}?" for number in range(40)]
    chats = [
        [{"role": "user", "content": text}, {"role": "assistant", "content": "It is on its way."}] for text in asked
    ]
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps({'messages': chat})}\n" for chat in chats))
    (tmp_path / "questions.csv").write_text('prompt\n"Where is my order?"\n"Where is it,\nplease?"\n')
    tiny_model(tmp_path / "gpt2", "gpt2", texts=[*asked, "It is on its way."])
    shown, predict = re.findall(r"`(hfattn (?:data show|predict)[^`]*)`", page.partition("answers.yaml")[2])
    smaller = "--model.name gpt2 --data.chat_template chatml --evaluation.written 2 --training.max_steps 4"
    smaller += f" --data.max_length {POSITIONS}"
    train = "hfattn train answers.yaml --output_dir runs/answers"
    for command in (f"{shown} {smaller}", f"{train} {smaller}", predict.replace("RUN", "runs/answers")):
        done = run_anew(shlex.split(command), cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        if command.startswith("hfattn data"):
            assert "data: 40 rows of chats.jsonl, messages" in done.stdout
            assert "packed: " in done.stdout
    assert len(done.stdout.splitlines()) == 2
    assert "data: 40 rows of chats.jsonl, messages" in (tmp_path / "runs" / "answers" / "data_report.md").read_text()
