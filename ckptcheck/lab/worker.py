"""The probe's process: a fresh interpreter that makes optimizers, steps them, and writes what it saw.

Started as `python -P -m ckptcheck.lab.worker JOB.json EVENTS_FD ACK_FD`, like a worker of an experiment.
"""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ckptcheck.experiment.run import Context, Run
from ckptcheck.experiment.worker import Teller, carried_out, device_of
from ckptcheck.lab.contract import Contracts, joined
from ckptcheck.lab.job import ProbeJob

if TYPE_CHECKING:
    import torch


def main(arguments: list[str]) -> int:
    """Do one job; 0 when it came to its end, 1 otherwise."""
    job = ProbeJob.from_json(Path(arguments[0]).read_text())
    teller = Teller(int(arguments[1]))
    return carried_out(teller, lambda: _probe(job, teller))


def _probe(job: ProbeJob, teller: Teller) -> None:
    import torch

    from ckptcheck.lab.asked import asked_for
    from ckptcheck.lab.probing import probed
    from ckptcheck.lab.subject import Subject, torch_classes

    device = device_of(torch, job.device)
    names = job.subjects
    if names == ("all",):
        names = tuple(torch_classes())[job.share[0] :: job.share[1]]
    found: list[Contracts] = []
    for place, name in enumerate(names, 1):
        teller.at("import")
        subject = asked_for(name, job.arguments)
        if isinstance(subject, Subject):
            teller.at("step", place)
            found.append(probed(subject, job.device))
        else:
            found.append(_of_target(subject, device, job, teller))
    if job.exact:
        from ckptcheck.lab.exact import transitions

        found.append(Contracts(exact=tuple(transitions(job.device))))
    job.output.write_text(json.dumps(joined(found).to_json()))


def _of_target(build: "Callable[[Context], Run]", device: "torch.device", job: ProbeJob, teller: Teller) -> Contracts:
    """The target's own optimizers, and how it freezes; each build has a folder of its own."""
    from ckptcheck.lab.freezing import tried
    from ckptcheck.lab.targets import rows_of_target

    numbers = itertools.count()

    def built() -> Run:
        teller.at("build")
        folder = job.workdir / f"build-{next(numbers)}"
        folder.mkdir(parents=True)
        run = build(Context(device, job.seed, folder))
        teller.at("step", 0)
        return run

    run = built()
    declared = {**run.freeze, **job.freeze}
    rows = tuple(rows_of_target(run, job, teller)) if run.optimizer is not None else ()
    del run
    return Contracts(rows, freezing=tuple(tried(built, declared, job.last)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
