"""The command ``doctor``."""

import importlib.util
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def doctor() -> None:
    """Show versions, accelerator and missing extras.

    Example: hfattn doctor
    """
    print(f"{'python':20}{platform.python_version()}")
    print(f"{'hfattn':20}{version('hfattn')}")
    print(f"{'accelerator':20}{_accelerator()}")
    print(f"{'generation':20}in lean steps where a model can; model.why_not_fast() says why not (docs/speed.md)")
    print(
        f"{'training':20}loss in chunks on a CPU where it can be; trainer.why_not_chunked() says why not "
        "(docs/speed.md)"
    )
    if importlib.util.find_spec("torch") and importlib.util.find_spec("accelerate"):
        print(f"{'matmul':20}{_matmul()}")
    wanting: dict[str, list[str]] = {}
    for line in requires("hfattn") or []:
        requirement = Requirement(line)
        extra = re.search(r"extra == ['\"](\w+)", line)
        package = f"hfattn[{extra[1]}]" if extra else "hfattn"
        if package == "hfattn[dev]" or requirement.name == "hfattn":  # an extra that includes another one
            continue
        try:
            found = version(requirement.name)
            good = requirement.specifier.contains(found, prereleases=True)
        except PackageNotFoundError:
            found, good = "missing", False
        if not good:
            wanting.setdefault(package, []).append(f"{requirement.name}{requirement.specifier}")
        print(f"{requirement.name:20}{found:20}{package}")
    for package, names in wanting.items():
        print(f"To install {', '.join(names)}: {sys.executable} -m pip install --upgrade '{package}'")
    if not wanting:
        print("Nothing is missing.")


def _matmul() -> str:
    """Return what the field ``matmul: auto`` of a recipe selects on this machine, and why."""
    from hfattn.training.arguments import trains_on_cpu
    from hfattn.training.matrix_products import EXACT, FASTER, compare_products

    if not trains_on_cpu():
        return "auto is off: the field has no effect on a GPU"
    found = compare_products()
    return (
        f"auto is {'on' if found.is_better else 'off'}: oneDNN multiplies float32 matrices {found.speed:.1f} times as "
        f"fast as the default (on from {FASTER:g}), with {found.error:.1f} times its error (on up to {EXACT:g})"
    )


def _accelerator() -> str:
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            return f"unknown without {name}"
    import torch

    from hfattn.models.recurrent_cells import cpu_has_bfloat16

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)"
    instructions = "with" if cpu_has_bfloat16() else "without"
    return f"none, {torch.get_num_threads()} CPU threads, {instructions} bfloat16 instructions"
