"""`python -m tests.check_cases.sweep --count N --seed S`: false alarms over healthy trainings, and what is caught."""

import argparse
import traceback
import warnings
from collections import Counter

from tests.check_cases.sweep.judging import Alarm, alarms, caught


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warnings", action="store_true", help="show warnings too")
    parser.add_argument("--recall", action="store_true", help="put faults in and count those that are told")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.recall:
        recall(range(asked.seed, asked.seed + asked.count))
        return
    told: list[Alarm] = []
    for seed in range(asked.seed, asked.seed + asked.count):
        try:
            found = [*alarms(seed)]
            told += found
            print(*(one for one in found if one.is_error), sep="\n", end="", flush=True)
        except Exception:  # noqa: BLE001  one training that cannot be drawn must not end the others
            print(f"seed {seed} raised")
            traceback.print_exc()
    if asked.warnings:
        shown: Counter[tuple[str, str]] = Counter()
        for one in told:
            kind = one.finding.code, one.door
            shown[kind] += 1
            if one.finding.severity == "warning" and shown[kind] <= 3:
                print(one)
    by_kind = Counter((str(one.finding.severity), one.finding.code) for one in told)
    print(f"{asked.count} trainings, {sum(one.is_error for one in told)} false alarms")
    for (severity, code), count in sorted(by_kind.items()):
        print(f"  {severity:8} {code} {count}")


def recall(seeds: range) -> None:
    """Print how many faults of each kind are told, and each that is not."""
    kinds: dict[str, list[tuple[bool, bool]]] = {}
    for seed in seeds:
        for one in caught(seed):
            kinds.setdefault(one.done.what, []).append((one.told, one.named))
            if not one.named:
                said = "; ".join(f"{each.code} {each.message}" for each in one.findings if each.code in one.done.codes)
                print(f"missed: {one.done} said: {said or 'nothing'}\n    {one.recipe}")
    for what, found in sorted(kinds.items()):
        told, named = (sum(one[place] for one in found) for place in (0, 1))
        print(f"{what}: {told} of {len(found)} told, {named} with the name")


if __name__ == "__main__":
    main()
