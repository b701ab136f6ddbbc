"""`python -m tests.catalogue`: run the catalogue and print its figures by family."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.catalogue.cells import fault_cells
from tests.catalogue.clean import clean_cells
from tests.catalogue.combinations import combined_cells
from tests.catalogue.fault import Score
from tests.catalogue.figures import table_of
from tests.catalogue.running import Cell, judged_all

A_SHARD: Final = 10
"""Cells that a process judges before it tells."""


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 where a fault was missed or a clean resume failed."""
    asked = _parsed(arguments)
    cells = _cells(asked)
    started = time.monotonic()
    scores = []
    with Path(asked.output or os.devnull).open("w") as output:
        for one in _scores(cells, asked.workers):
            scores.append(one)
            if asked.verbose or not one.right:
                print(f"{'ok  ' if one.right else 'OFF '}{one.cell}: {one.got}{one.what_is_off}", flush=True)
            output.write(json.dumps(asdict(one)) + "\n")
            output.flush()
    print(table_of(scores))
    print(f"{len(scores)} cells in {time.monotonic() - started:.0f} s")
    return int(not all(one.detected for one in scores))


def _scores(cells: Sequence[Cell], workers: int) -> Iterator[Score]:
    """The verdicts in the order of the cells, as they come, from several processes."""
    shards = [cells[place : place + A_SHARD] for place in range(0, len(cells), A_SHARD)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for shard in pool.map(judged_all, shards):
            yield from shard


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.catalogue", description=__doc__)
    parser.add_argument("--clean", action="store_true", help="the clean matrix only")
    parser.add_argument("--faults", action="store_true", help="the faults only")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="cells with this text in their name"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th cell only")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes side by side (2)")
    parser.add_argument("--output", metavar="FILE", help="write a JSON line a cell")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every cell")
    return parser.parse_args(arguments)


def _cells(asked: argparse.Namespace) -> list[Cell]:
    cells = [] if asked.clean else [*fault_cells(), *combined_cells()]
    cells += [] if asked.faults else clean_cells()
    wanted = [one for one in cells if all(text in str(one) for text in asked.only)]
    return wanted[:: asked.every]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
