"""Write docs/claims.md and its charts from the records."""

from pathlib import Path
from typing import Any

from .claim import RECORDS, Claim, Panel, entries_of, is_measured, samples, verdicts
from .registry import CLAIMS

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
INTRODUCTION = """# Claims from the literature

Each section tests one statement: its variants differ in one setting and share the data, the order of the batches and
the number of steps. `python -m benchmarks.claims run NAME` measures a section, and `python -m benchmarks.claims write`
generates this page from the records in `benchmarks/claims/records/`. ± is the standard deviation over seeds, or over
the rounds of a benchmark. The models are small and the runs are short, so a section tests its statement in that setting
only.

The statements below a table are judged by the 95% confidence interval of a difference of means (Student's t over the
seeds or rounds): *supported* if the statement holds in the whole interval, *refuted* if it holds nowhere in it, and
*undecided* otherwise. Settings and criteria were fixed before the measurements; a section says which variants were
added later, and which settings were changed after earlier runs.
"""


def section(name: str, claim: Claim, records: Path) -> list[str]:
    entries = entries_of(name, claim, records)
    found = {variant: samples(entries, variant) for variant in claim.variants}
    names = list(dict.fromkeys(value for values in found.values() for value in values if _is_used(value, claim)))
    lines = [f"## {claim.title}", "", f"{claim.source}.", "", claim.setting, ""]
    lines += [
        f"| | {' | '.join([*names, 'rounds' if claim.benchmark else 'seeds'])} |",
        f"|---|{'---|' * (len(names) + 1)}",
    ]
    for variant, values in found.items():
        number = max((each.number for each in values.values()), default=0)
        cells = [str(values[value]) if value in values else "" for value in names]
        lines.append(f"| {' | '.join([variant, *cells, str(number)])} |")
    if (PAGE.parent / "assets" / f"claims-{name}.png").exists():
        lines += ["", f"![{claim.title}](assets/claims-{name}.png)"]
    lines += ["", *(f"- {statement}: **{word}** {rest}" for statement, word, rest in _split(claim, entries))]
    command = f"benchmarks {claim.benchmark}" if claim.benchmark else f"benchmarks.claims run {name}"
    return [*lines, "", f"Measured with `python -m {command}`{_where(entries)}.", ""]


def _is_used(value: str, claim: Claim) -> bool:
    # Claims that share runs show only the values of their own statements.
    return not claim.record or value in {each.value for each in claim.statements}


def _split(claim: Claim, entries: list[dict[str, Any]]) -> list[tuple[Any, str, str]]:
    return [(statement, *text.partition(" ")[::2]) for statement, text in verdicts(claim, entries)]


def _where(entries: list[dict[str, Any]]) -> str:
    hardware = sorted({each["hardware"] for each in entries})
    return f" on {', '.join(hardware)}" if hardware else ""


def draw(name: str, claim: Claim, records: Path, folder: Path) -> None:
    """Draw the panels of a claim, or the values of its statements if it has none.

    Without curves for its panels, a chart that was drawn before is kept.
    """
    entries = entries_of(name, claim, records)
    if not claim.panels:
        figure = _values(claim, entries)
    elif with_curves := [each for each in entries if each.get("curves")]:
        figure = _curves(claim, with_curves)
    else:
        return
    figure.savefig(folder / f"claims-{name}.png", dpi=110, metadata={"Software": None})


def _values(claim: Claim, entries: list[dict[str, Any]]) -> Any:
    """Draw a panel for each value that the statements are about: a point for each run, and the mean of a variant."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.value for each in claim.statements))
    figure = Figure(figsize=(4.5 * len(names) + 1, 0.4 * len(claim.variants) + 1.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False, sharey=True)[0], names, strict=True):
        for row, variant in enumerate(claim.variants):
            runs = [each["values"][name] for each in entries if each["variant"] == variant and name in each["values"]]
            axes.plot(runs, [row] * len(runs), "o", color=f"C{row}", alpha=0.6)
            if runs:
                axes.plot(sum(runs) / len(runs), row, "|", color=f"C{row}", markersize=22)
        axes.set(xlabel=name, ylim=(len(claim.variants) - 0.5, -0.5))
        axes.set_yticks(range(len(claim.variants)), claim.variants)
        axes.locator_params(axis="x", nbins=5)  # long names of variants leave little width for the numbers
        axes.grid(alpha=0.25, axis="x")
    return figure


def _curves(claim: Claim, entries: list[dict[str, Any]]) -> Any:
    """Draw a curve for each variant in each panel."""
    from matplotlib.figure import Figure

    width = 4.5 * len(claim.panels) + 1
    columns = max(1, min(2 * len(claim.panels), int(width / (0.09 * max(map(len, claim.variants)) + 0.5))))
    rows = -(-len(claim.variants) // columns)
    figure = Figure(figsize=(width, 3.8 + 0.2 * max(0, rows - 5)), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(claim.panels), squeeze=False)[0], claim.panels, strict=True):
        for number, variant in enumerate(claim.variants):
            # There are ten colors.
            look = {"color": f"C{number % 10}", "linestyle": "--" if number >= 10 else "-"}
            _curve(axes, panel, variant, look, [each for each in entries if each["variant"] == variant])
        axes.set(xlabel=panel.x, ylabel=panel.y, xscale="log" if panel.log_x else "linear")
        axes.set_yscale("log" if panel.log_y else "linear")
        axes.grid(alpha=0.25)
        if not panel.log_x and all(x.is_integer() for line in axes.get_lines() for x in line.get_xdata()):
            axes.xaxis.get_major_locator().set_params(integer=True)
        handles.update({line.get_label(): line for line in axes.get_lines()})
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _curve(axes: Any, panel: Panel, variant: str, look: dict[str, str], entries: list[dict[str, Any]]) -> None:
    curves = [each["curves"][panel.curve] for each in entries if panel.curve in each["curves"]]
    if not curves:
        return
    by_x: dict[float, list[float]] = {}  # seeds share most of their x
    for curve in curves:
        for at, y in curve:
            by_x.setdefault(at, []).append(y)
    x, heights = sorted(by_x), [by_x[at] for at in sorted(by_x)]
    axes.plot(x, [sum(each) / len(each) for each in heights], label=variant, **look)
    axes.fill_between(
        x, [min(each) for each in heights], [max(each) for each in heights], color=look["color"], alpha=0.15
    )


def render(records: Path = RECORDS) -> str:
    lines = [INTRODUCTION, "| statement | supported | refuted | undecided |", "|---|---|---|---|"]
    sections = []
    for name, claim in CLAIMS.items():
        entries = entries_of(name, claim, records)
        if not is_measured(claim, entries):
            continue
        words = [word for _, word, _ in _split(claim, entries)]
        counts = [str(words.count(word)) for word in ("supported", "refuted", "undecided")]
        lines.append(f"| {' | '.join([claim.title, *counts])} |")
        sections += section(name, claim, records)
    return "\n".join([*lines, "", *sections]).rstrip() + "\n"


def write(records: Path = RECORDS) -> None:
    for name, claim in CLAIMS.items():
        if is_measured(claim, entries_of(name, claim, records)):
            draw(name, claim, records, PAGE.parent / "assets")
    PAGE.write_text(render(records), encoding="utf-8")
    print(f"Written: {PAGE}")
