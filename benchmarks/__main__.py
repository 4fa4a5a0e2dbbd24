"""Run a benchmark by its name, or list all of them.

python -m benchmarks [NAME ARGUMENTS ...]
"""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """Return the first sentence of the documentation of each benchmark, by its name."""
    found = {}
    for path in sorted((*HERE.glob("[!_]*.py"), *HERE.glob("*/__main__.py"))):
        code = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in code:
            name = path.parent.name if path.stem == "__main__" else path.stem
            documentation = ast.get_docstring(ast.parse(code)) or ""
            found[name] = documentation.partition("\n\n")[0].replace("\n", " ")
    return found


def main() -> None:
    known, (name, *arguments) = benchmarks(), sys.argv[1:] or [""]
    if name not in known:
        print("python -m benchmarks NAME [--help]\n")
        print("\n".join(f"{each:22}{documentation}" for each, documentation in known.items()))
        raise SystemExit(f"\n{name!r} is not a benchmark; write one of these names." if name else 0)
    sys.argv = [f"python -m benchmarks {name}", *arguments]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
