"""Errors as a command reports them."""

import pytest
import torch

from hfattn.errors import one_sentence


def test_too_little_memory_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, one_sentence():
        torch.empty(10**15)
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: The memory is not enough: 4000000000000000 bytes more were asked for; "
        "use smaller batches, shorter texts or fewer beams.\n"
    )


def test_another_error_of_torch_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="must match the size"), one_sentence():
        torch.ones(2) + torch.ones(3)
