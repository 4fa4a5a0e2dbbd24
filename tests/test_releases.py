"""Models that earlier releases have saved are loaded, and compute what they did."""

from pathlib import Path

import pytest
import torch
import transformers
from released_models import OUTPUTS, RELEASES, models, outputs
from safetensors.torch import load_file

from hfattn import __version__
from hfattn.clean_process import auto_class

FOLDERS = sorted(path.parent for path in RELEASES.glob(f"*/*/{OUTPUTS}"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_model_of_a_release_computes_what_it_did(folder: Path) -> None:
    config = transformers.AutoConfig.from_pretrained(folder)
    model, found = getattr(transformers, auto_class(config)).from_pretrained(folder, output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert len(transformers.AutoTokenizer.from_pretrained(folder)) == config.vocab_size
    now, then = outputs(model.eval()), load_file(folder / OUTPUTS)
    assert now.keys() == then.keys()
    torch.testing.assert_close(now["logits"], then["logits"], rtol=1e-5, atol=1e-5)
    assert torch.equal(now.get("generated", torch.empty(0)), then.get("generated", torch.empty(0)))


def test_every_kind_of_model_of_this_version_is_kept() -> None:
    assert {path.name for path in FOLDERS if path.parent.name == __version__} == models(12).keys()
