"""The license and the languages that a card states: what the Hub knows, and what is missing."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import metadata_load
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from ..errors import UserError
from ..files import write_json
from ..yaml_values import load_yaml
from .card import read_results

# The identifiers that the Hub accepts as the license of a model or a data set.
_LICENSES = """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
    bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0
    eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research
    intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit
    mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openmdw-1.1 openrail openrail++ osl-3.0 other pddl postgresql
    unknown unlicense wtfpl zlib
"""
_LARGEST_CARD = 2**22  # bytes
# The codes of ISO 639-1. Of the three-letter codes of ISO 639-3, only the form is checked: there are 8,000.
_LANGUAGES = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka
    kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
    nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv
    sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu code multilingual
"""


def check_license(name: str) -> str:
    """Return a license identifier in the Hub's spelling.

    Raises:
        UserError: the Hub does not know it.
    """
    known = _LICENSES.split()
    if name.lower() in known:
        return name.lower()
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    raise UserError(
        f"The Hub knows no license {name!r}; write "
        + (f"{' or '.join(near)}, or " if near else "")
        + "an identifier of https://huggingface.co/docs/hub/repositories-licenses, or other."
    )


def check_languages(codes: Sequence[str]) -> list[str]:
    """Return language codes, of which one text may have several with commas between them.

    Raises:
        UserError: one is not a code of ISO 639.
    """
    single = [code.strip().lower() for text in codes for code in text.split(",")]
    for code in single:
        if code not in _LANGUAGES.split() and not re.fullmatch(r"[a-z]{3}", code):
            raise UserError(f"{code!r} is not a language code of ISO 639; write en, es or another one.")
    return list(dict.fromkeys(single))


def state(folder: Path, license: str | None, languages: Sequence[str]) -> None:
    """Store a license and languages in ``results.json``, from which the card is written.

    Args:
        folder: the folder of a finished run.
        license: identifier of the license of the weights; None keeps the one that is stated.
        languages: codes of the languages of the texts; an empty sequence keeps those that are stated.

    Raises:
        UserError: the folder has no ``results.json``, or the Hub does not know the license or a language.
    """
    results = with_statements(read_results(folder), license, languages)
    write_json(folder / "results.json", results)


def with_statements(results: dict[str, Any], license: str | None, languages: Sequence[str]) -> dict[str, Any]:
    """Return results with a license and languages; see ``state``."""
    configuration = results.setdefault("configuration", {})
    card = dict(configuration.get("card") or {})
    if license is not None:
        card["license"] = check_license(license)
    if languages:
        data = configuration.setdefault("data", {})
        # A converted model names its checkpoint as its data.
        data["dataset"] = data.get("dataset") or results.get("data", {}).get("name", "data")
        if card.get("describes") != data["dataset"]:  # what is stated describes other texts
            card = {name: value for name, value in card.items() if name == "license"}
        card |= {"describes": data["dataset"], "language": check_languages(languages)}
    configuration["card"] = card
    return results


def missing_statements(card: Path, folder: Path, repo_type: str = "model") -> list[str]:
    """Return a warning for a card that states no license, and for one that states no language.

    Args:
        card: the file.
        folder: the folder that the warning names.
        repo_type: "model", "dataset" or "space"; the warning for a model names the command that states it. A space
            needs no statement.

    Raises:
        UserError: the metadata of the card are not valid YAML.
    """
    data = card_data(card)
    examples = {"license": "apache-2.0", "language": "en"} if repo_type != "space" else {}
    advice = "hfattn card {} --{} {}" if repo_type == "model" else "write it at the head of {}/README.md, as in {}: {}"
    return [
        f"The card states no {name}: {advice.format(folder, name, example)}"
        for name, example in examples.items()
        if data.get(name) in (None, [], "unknown")
    ]


def card_data(card: Path) -> dict[str, object]:
    """Return the metadata of a card; empty if there is no card.

    Raises:
        UserError: they are not valid YAML, have tags or aliases, or are nested very deeply; or the card is larger than
            4 MiB.
    """
    if not card.is_file():
        return {}
    if card.stat().st_size > _LARGEST_CARD:
        raise UserError(f"{card} has more than {_LARGEST_CARD // 2**20} MiB; write a shorter card.")
    try:
        if (found := REGEX_YAML_BLOCK.search(card.read_text(encoding="utf-8-sig"))) is not None:
            load_yaml(found[2])  # stricter than what the Hub reads: aliases could stand for a value of any size
        return metadata_load(card) or {}
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"The metadata of {card} cannot be read ({reason}); write the card again.") from None
