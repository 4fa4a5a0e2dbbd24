"""Claims of the literature: each is a module with variants that differ in one setting, a measurement and statements.

    python -m benchmarks.claims list
    python -m benchmarks.claims run NAME ... [--seeds 1 2 3] [--data FOLDER]
    python -m benchmarks.claims write

``run`` measures the variants that have no record yet and writes ``records/NAME.json`` after each; ``write`` computes
the verdicts and charts of docs/claims.md from the records.
"""
