"""Which of Megatron's ranks are not there, by the arguments that every rank saves."""

from pathlib import Path
from typing import Any

import pytest

from ckptcheck.readers.folders.megatron_parts import lost_ranks
from ckptcheck.state.raw import Foreign, RawTree


def found(ranks: list[str], root: Any, *more: str) -> list[tuple[str, str]]:
    labels = [*(f"iter_3/{rank}/model_optim_rng.pt" for rank in ranks), *(f"iter_3/{one}" for one in more)]
    return list(lost_ranks({label: RawTree(Path(label), "torch-zip", root, 0) for label in labels}))


def saved(tensor: Any = 1, pipeline: Any = 1, optimizer: Any = None) -> dict[str, Any]:
    sizes = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}
    return {"args": Foreign("argparse.Namespace", state=sizes), "optimizer": optimizer}


@pytest.mark.parametrize(
    ("ranks", "root", "lost"),
    [
        (["mp_rank_00"], saved(), []),
        (["mp_rank_00"], saved(2), ["mp_rank_01"]),
        (["mp_rank_00_000", "mp_rank_00_001"], saved(1, 2), []),
        (["mp_rank_00_001"], saved(2, 2), ["mp_rank_00_000", "mp_rank_01_000", "mp_rank_01_001"]),
        (["mp_rank_00_000", "mp_rank_00_001"], saved(1, 1), []),  # the second number is an expert's
        (["mp_rank_00"], saved("2", None), []),
        (["mp_rank_00"], saved(1 << 40, 2), ["mp_rank_00_000", "mp_rank_00_001"]),
        (["mp_rank_00"], {"args": None}, []),
        (["mp_rank_00"], [], []),
    ],
)
def test_a_rank_that_the_arguments_name_must_be_there(ranks, root, lost):
    told = found(ranks, root)
    assert [one for _, said in told for one in said.split(" not there")[0].replace(",", "").split()[:-1]] == lost
    assert all(folder == "iter_3" for folder, _ in told)


BARE = {"optimizer": {"param_groups": [{"lr": 0.1}]}}


@pytest.mark.parametrize(
    ("optimizer", "more", "is_lost"),
    [
        (BARE, (), True),
        ([BARE, BARE], (), True),
        (BARE, ("mp_rank_00/distrib_optim.pt",), False),
        ({"optimizer": {"param_groups": [{"lr": 0.1, "params": [0]}], "state": {}}}, (), False),
        ({"optimizer": {"param_groups": [{"lr": 0.1}], "state": {}}}, (), False),
        ({"optimizer": {"param_groups": []}}, (), False),
        (None, (), False),
    ],
)
def test_groups_without_parameters_need_the_file_of_their_buckets(optimizer, more, is_lost):
    told = found(["mp_rank_00"], saved(optimizer=optimizer), *more)
    assert [folder for folder, said in told if "distrib_optim.pt" in said] == ["iter_3/mp_rank_00"] * is_lost
