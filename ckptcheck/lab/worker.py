"""The probe's process: a fresh interpreter that makes optimizers, steps them, and writes what it saw.

Started as `python -P -m ckptcheck.lab.worker JOB.json EVENTS_FD ACK_FD`, like a worker of an experiment.
"""

import json
import sys
from pathlib import Path

from ckptcheck.experiment.worker import Teller, carried_out, device_of
from ckptcheck.lab.contract import Contracts
from ckptcheck.lab.job import ProbeJob


def main(arguments: list[str]) -> int:
    """Do one job; 0 when it came to its end, 1 otherwise."""
    job = ProbeJob.from_json(Path(arguments[0]).read_text())
    teller = Teller(int(arguments[1]))
    return carried_out(teller, lambda: _probe(job, teller))


def _probe(job: ProbeJob, teller: Teller) -> None:
    import torch

    from ckptcheck.lab.probing import probed
    from ckptcheck.lab.subject import torch_classes, torch_subject

    device_of(torch, job.device)
    names = job.subjects
    if names == ("all",):
        names = tuple(torch_classes())[job.share[0] :: job.share[1]]
    found: list[Contracts] = []
    for place, name in enumerate(names, 1):
        teller.at("step", place)
        found.append(probed(torch_subject(name, job.arguments), job.device))
    whole = Contracts(*(sum((getattr(one, part) for one in found), ()) for part in
                        ("rows", "implementations", "exact", "keeping", "freezing")))  # fmt: skip
    job.output.write_text(json.dumps(whole.to_json()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
