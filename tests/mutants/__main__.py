"""`python -m tests.mutants`: does the suite see mistakes in the checker?

Everything happens in copies below a working folder. The first run measures which tests run which statements, which
takes as long as these tests; `--work` keeps that, and the copy it is true of, for later runs.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants import hand_comparison, hand_experiment, hand_rules
from tests.mutants.copying import PACKAGE, copy
from tests.mutants.mutant import Mutant, mutant
from tests.mutants.reach import measured
from tests.mutants.running import BUDGET_S, Fate, judge_all
from tests.mutants.telling import kind, report, score
from tests.mutants.tool import number_of_places, sample

HAND = (*hand_comparison.HAND, *hand_rules.HAND, *hand_experiment.HAND)
TOOL_ROOMS = ("comparison", "rules", "experiment")
ENOUGH = 0.95


def main() -> int:
    """Run what was asked for; 0 where at least 95 % are killed."""
    options = _options()
    work = options.work or Path(tempfile.mkdtemp(prefix="mutants-"))
    work.mkdir(parents=True, exist_ok=True)
    pristine = work / "pristine"
    if not (options.frozen and pristine.exists()):
        shutil.rmtree(pristine, ignore_errors=True)
        copy(Path(__file__).resolve().parents[2], pristine)
    reach = measured(pristine, work)
    roots = [_copied(pristine, work / f"copy-{place}") for place in range(options.workers)]
    mutants = list(_chosen(pristine, work, options))
    fates: list[Fate] = []
    with (work / "fates.jsonl").open("a") as kept:
        for fate in judge_all(mutants, roots, reach, options.budget):
            fates.append(fate)
            told = {"name": fate.mutant.name, "place": fate.mutant.place, "fate": kind(fate), "by": fate.by,
                    "seconds": round(fate.seconds, 1), "diff": fate.mutant.diff}  # fmt: skip
            kept.write(json.dumps(told) + "\n")
            kept.flush()
            print(f"{len(fates)}/{len(mutants)} {kind(fate):10} {fate.mutant.place} {fate.mutant.name}  "
                  f"{fate.seconds:.1f} s  {fate.by}", file=sys.stderr, flush=True)  # fmt: skip
    if options.tool:
        print(f"a sample of {options.sample} with seed {options.seed} of {number_of_places(work / 'places.json')}")
    print("\n".join(report(fates)))
    return 0 if score(Counter(kind(one) for one in fates)) >= ENOUGH else 1


def _copied(pristine: Path, root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)
    return root


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--hand", action="store_true", help="the hand-written list (the default)")
    parser.add_argument("--tool", action="store_true", help="a sample of cosmic-ray's mutants (extra: mutation)")
    parser.add_argument("--sample", type=int, default=100, help="how many of the tool's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names, comma-separated, or a part of a path")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests for a mutant")
    parser.add_argument("--work", type=Path, help="a folder to keep copies and measurements in")
    parser.add_argument("--frozen", action="store_true", help="keep the copy that the working folder has")
    return parser.parse_args()


def _chosen(root: Path, work: Path, options: argparse.Namespace) -> list[Mutant]:
    found: list[Mutant] = []
    if options.hand or not options.tool:
        stale = [one.name for one in HAND if not fits(root, one)]
        print("".join(f"out of date, left out: {name}\n" for name in stale), end="")
        found += [made(root, one) for one in HAND if fits(root, one)]
    if options.tool:
        found += sample(root, TOOL_ROOMS, options.sample, options.seed, work / "places.json")
    asked = options.only.split(",")
    return [one for one in found if not options.only or one.name in asked or options.only in one.path]


def fits(root: Path, one: "hand_comparison.Hand") -> bool:
    """Whether the package still has the text that the mistake replaces, once."""
    path = root / PACKAGE / one.path
    return path.is_file() and path.read_text().count(one.old) == 1


def made(root: Path, one: "hand_comparison.Hand") -> Mutant:
    """A mistake put into its file. ValueError where its text does not stand there exactly once."""
    path = f"{PACKAGE}/{one.path}"
    original = (root / path).read_text()
    if original.count(one.old) != 1:
        raise ValueError(f"{one.name}: its text stands {original.count(one.old)} times in {path}: bring it up to date")
    return mutant(one.name, path, original, original.replace(one.old, one.new), one.why)


if __name__ == "__main__":
    sys.exit(main())
