"""Cases of binding: names, shapes, groups and ties of one checkpoint."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.training import ConvNet, Mlp, Tied, decay_groups, saved, train


def put(folder: Path, state: Any) -> Path:
    torch.save(state, folder / "last.pt")
    return folder / "last.pt"


def named(model: nn.Module, kind: Any = torch.optim.AdamW, **options: Any) -> dict[str, Any]:
    """A trained model and its optimizer, which keeps param_names."""
    optimizer = kind(list(model.named_parameters()), **options)
    train(model, optimizer)
    return saved(model, optimizer)


def pickled(model: nn.Module, *optimized: str) -> dict[str, Any]:
    """The parameters themselves, and an optimizer of some of them."""
    optimizer = torch.optim.AdamW([(name, model.get_parameter(name)) for name in optimized])
    train(model, optimizer)
    return saved(model, optimizer) | {"model": dict(model.named_parameters())}


def a_layer_resized_after_the_optimizer_was_built(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.AdamW(list(model.named_parameters()))
    train(model, optimizer)
    model.head = nn.Linear(6, 5)
    return put(folder, saved(model, optimizer))


def names_sorted_and_state_not(folder: Path) -> Path:
    state = named(ConvNet())
    (group,) = state["optimizer"]["param_groups"]
    group["param_names"] = sorted(group["param_names"])
    return put(folder, state)


def a_parameter_twice_in_a_group(folder: Path) -> Path:
    model = Tied()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what this case is about
        optimizer = torch.optim.SGD([*model.parameters(), model.head.weight], momentum=0.9)
    train(model, optimizer)
    return put(folder, saved(model, optimizer))


def a_parameter_in_two_groups(folder: Path) -> Path:
    """Torch refuses to build it, and loads it."""
    model = Mlp()
    optimizer = torch.optim.AdamW(
        [{"params": [(name, one)]} for name, one in model.named_parameters() if name.startswith("layers.1")]
    )
    train(model, optimizer)
    state = saved(model, optimizer)
    for group in state["optimizer"]["param_groups"]:
        group["params"], group["param_names"] = [0], ["layers.1.weight"]
    return put(folder, state)


def a_bias_that_was_forgotten(folder: Path) -> Path:
    model = Mlp()
    return put(folder, pickled(model, *(name for name, _ in model.named_parameters() if name != "head.bias")))


def weights_of_a_compiled_model(folder: Path) -> Path:
    return put(folder, {f"_orig_mod.{name}": one for name, one in Mlp().state_dict().items()})


def weights_of_a_parallel_model(folder: Path) -> Path:
    return put(folder, nn.DataParallel(Mlp()).state_dict())


def by_name(model: nn.Module, prefix: str = "") -> dict[str, Any]:
    """As `torch.distributed.checkpoint.state_dict` leaves it: state and groups keyed by name."""
    state = named(model)
    (group,) = state["optimizer"]["param_groups"]
    names = [f"{prefix}{name}" for name in group.pop("param_names")]
    state["optimizer"]["state"] = dict(zip(names, state["optimizer"]["state"].values(), strict=True))
    group["params"] = names
    return state


def an_optimizer_under_another_modules_names(folder: Path) -> Path:
    return put(folder, by_name(Mlp(), "network."))


def tied_weights(folder: Path, *, equal: bool = False, tied: bool = True, head: bool = True) -> Path:
    weights = {"transformer.wte.weight": torch.randn(11, 4)}
    if head:
        weights["lm_head.weight"] = weights["transformer.wte.weight"].clone() * (1 if equal else 2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "tie_word_embeddings": tied}))
    return folder


def swapped_without_names(folder: Path) -> Path:
    """Both layers are of one shape: nobody can tell."""
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    state = saved(model, optimizer)
    kept = state["optimizer"]["state"]
    kept[0], kept[2] = kept[2], kept[0]
    return put(folder, state)


def unnamed(model: nn.Module, kind: Any = torch.optim.AdamW) -> dict[str, Any]:
    """A trained model and its optimizer, which knows indices only."""
    optimizer = kind(model.parameters())
    train(model, optimizer)
    return saved(model, optimizer)


def of_another_shape(*indices: int, keys: tuple[str, ...] = ("exp_avg", "exp_avg_sq"), shape: tuple[int, ...] = (5,),
                     kind: Any = torch.optim.AdamW, also: int = 0) -> Make:  # fmt: skip
    """State under indices without names that no parameter of the model has; `also` indices are not in the model."""

    def make(folder: Path) -> Path:
        state = unnamed(Mlp(), kind)
        for index in indices:
            state["optimizer"]["state"][index] |= {key: torch.ones(shape) for key in keys}
        for _ in range(also):
            del state["model"][next(reversed(state["model"]))]
        return put(folder, state)

    return make


class Bordered(nn.Module):
    """Layers between buffers, which a file without marks does not tell from parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
        self.register_buffer("prototype", torch.ones(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def parameters_of_a_loss(folder: Path) -> Path:
    """The optimizer trains one parameter more, of the loss, which is not saved; the model has a buffer at its end."""
    model, scale = Bordered(), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([*model.parameters(), scale])
    (model(torch.randn(5, 6)).square().mean() + scale.sum()).backward()
    optimizer.step()
    return put(folder, saved(model, optimizer))


def indices_left_out(folder: Path) -> Path:
    """A frozen layer was filtered out: there are fewer indices than parameters."""
    model = Mlp()
    model.layers[0].requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(one for one in model.parameters() if one.requires_grad)
    train(model, optimizer)
    return put(folder, saved(model, optimizer))


def projected_without_names(folder: Path) -> Path:
    state = unnamed(Mlp())
    for kept in state["optimizer"]["state"].values():
        for key in ("exp_avg", "exp_avg_sq"):
            kept[key] = kept[key][:2] if kept[key].dim() > 1 else kept[key]
    return put(folder, state)


def flat_shards_without_names(folder: Path) -> Path:
    state = unnamed(Mlp())
    for place, kept in state["optimizer"]["state"].items():
        for key in ("exp_avg", "exp_avg_sq"):
            kept[key] = kept[key].reshape(-1)[: 5 if place < 4 else 0].clone()
    return put(folder, state)


FAULTY: tuple[Faulty, ...] = (
    Faulty("state of an index without a name that fits no parameter", of_another_shape(3), "CK304", "layers.1.bias"),
    Faulty("a weight of an index without a name that was turned", of_another_shape(6, shape=(6, 3)), "CK304",
           "head.weight"),
    Faulty("two indices without names whose state fits no parameter", of_another_shape(1, 3), "CK304",
           "layers.0.bias", severity="warning"),
    Faulty("one moment alone of an index without a name has another shape", of_another_shape(2, keys=("exp_avg",)),
           "CK304", "#2"),
    Faulty("a layer was resized after the optimizer was built", a_layer_resized_after_the_optimizer_was_built,
           "CK304", "head.weight", mechanism="order"),
    Faulty("the names of a group were sorted and its state was not", names_sorted_and_state_not,
           "CK302", "conv.weight", mechanism="order"),
    Faulty("a tied head was handed to the optimizer beside the embedding", a_parameter_twice_in_a_group,
           "CK305", "embedding.weight"),
    Faulty("a parameter stands in two groups", a_parameter_in_two_groups, "CK305", "layers.1.weight"),
    Faulty("a bias was left out of the optimizer", a_bias_that_was_forgotten, "CK303", "head.bias",
           mechanism="uncovered"),
    Faulty("a release of a compiled model has its wrapper in every name", weights_of_a_compiled_model,
           "CK310", severity="warning", mechanism="prefix"),
    Faulty("a release of a parallel model has its wrapper in every name", weights_of_a_parallel_model,
           "CK310", severity="warning", mechanism="prefix"),
    Faulty("an optimizer that goes by name has those of an outer module", an_optimizer_under_another_modules_names,
           "CK310", "network.layers.0.weight", severity="warning", mechanism="prefix"),
    Faulty("the configuration ties what the weights have apart", tied_weights, "CK311", "lm_head.weight",
           mechanism="tied"),
    Faulty("state of equal shapes is exchanged and no name is kept", swapped_without_names, "CK308", severity="info",
           mechanism="order"),
)  # fmt: skip


def wrapped(folder: Path) -> Path:
    """The model's names and the optimizer's have what a wrapper put into them."""
    model = nn.DataParallel(Mlp())
    optimizer = torch.optim.AdamW(list(model.named_parameters()))
    train(model.module, optimizer)
    return put(folder, saved(model, optimizer))


def bare_and_wrapped(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.AdamW(list(nn.DataParallel(model).named_parameters()))
    train(model, optimizer)
    return put(folder, saved(model, optimizer))


def a_head_alone(folder: Path) -> Path:
    return put(folder, pickled(Mlp(), "head.weight", "head.bias"))


def a_frozen_bias(folder: Path) -> Path:
    model = Mlp()
    model.head.bias.requires_grad_(False)
    return put(folder, pickled(model, *(name for name, one in model.named_parameters() if one.requires_grad)))


def a_tied_head(folder: Path) -> Path:
    model = Tied()
    state = pickled(model, *(name for name, _ in model.named_parameters()))
    return put(folder, state | {"model": {**state["model"], "head.weight": model.head.weight}})


def shared_by_two_optimizers(folder: Path) -> Path:
    model = Mlp()
    first, second = (torch.optim.SGD(list(model.named_parameters()), lr=rate, momentum=0.9) for rate in (0.1, 0.01))
    train(model, first)
    train(model, second)
    return put(folder, saved(model, first) | {"second_optimizer": second.state_dict()})


def projected(folder: Path) -> Path:
    """GaLore keeps the moments of matrices projected, and says so in its groups."""
    state = named(Mlp())
    for kept in state["optimizer"]["state"].values():
        for key in ("exp_avg", "exp_avg_sq"):
            kept[key] = kept[key][:2] if kept[key].dim() > 1 else kept[key]
    state["optimizer"]["param_groups"][0] |= {"rank": 2, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
    return put(folder, state)


def flat_shards(folder: Path) -> Path:
    """A rank of FSDP1 over the original parameters: whole weights, and flat pieces of their state."""
    state = named(Mlp())
    for place, kept in state["optimizer"]["state"].items():
        for key in ("exp_avg", "exp_avg_sq"):
            kept[key] = kept[key].reshape(-1)[: 6 if place < 4 else 0].clone()
    return put(folder, state)


def muon_and_adam(folder: Path) -> Path:
    model = Mlp()
    matrices = [(name, one) for name, one in model.named_parameters() if one.ndim == 2]
    rest = [(name, one) for name, one in model.named_parameters() if one.ndim != 2]
    both = torch.optim.Muon(matrices, lr=0.01), torch.optim.AdamW(rest)
    for one in both:
        train(model, one)
    return put(folder, saved(model, both[0]) | {"adam": both[1].state_dict()})


def grouped_without_names(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.AdamW(decay_groups(model))
    train(model, optimizer)
    return put(folder, saved(model, optimizer))


_SILENT = ("CK302", "CK303", "CK304", "CK305", "CK310", "CK311")

LEGAL: tuple[Legal, ...] = (
    Legal("a wrapper's prefix in the names of model and optimizer", wrapped, silent=_SILENT),
    Legal("a wrapper's prefix in the optimizer's names alone", bare_and_wrapped, silent=_SILENT),
    Legal("only a head is trained, and the rest is not frozen", a_head_alone, silent=_SILENT),
    Legal("a frozen bias is in no group", a_frozen_bias, silent=_SILENT),
    Legal("a tied head has the group of its embedding", a_tied_head, silent=_SILENT),
    Legal("two optimizers share every parameter", shared_by_two_optimizers, silent=_SILENT),
    Legal("moments that are projected to a lower rank", projected, silent=_SILENT),
    Legal("moments without names that are projected to a lower rank", projected_without_names, silent=_SILENT),
    Legal("flat shards of one rank without names", flat_shards_without_names, silent=_SILENT),
    Legal("an optimizer without names that trains a parameter of the loss, too", parameters_of_a_loss, silent=_SILENT),
    Legal("frozen parameters that are not among the indices", indices_left_out, silent=_SILENT),
    Legal("factored moments without names", lambda folder: put(folder, unnamed(Mlp(), torch.optim.Adafactor)),
          silent=_SILENT),
    Legal("state without names of a parameter that the model's file lacks", of_another_shape(7, also=1),
          silent=_SILENT),
    Legal("flat shards of one rank under their parameters' names", flat_shards, silent=_SILENT),
    Legal("factored moments under their parameters' names",
          lambda folder: put(folder, named(Mlp(), torch.optim.Adafactor)), silent=_SILENT),
    Legal("one state for all parameters, which are named",
          lambda folder: put(folder, named(Mlp(), torch.optim.LBFGS)), silent=(*_SILENT, "CK308")),
    Legal("no state at all, which is named",
          lambda folder: put(folder, named(Mlp(), torch.optim.SGD)), silent=(*_SILENT, "CK308")),
    Legal("matrices by Muon and the rest by AdamW", muon_and_adam, silent=(*_SILENT, "CK308")),
    Legal("state and groups that go by the model's names",
          lambda folder: put(folder, by_name(ConvNet())), silent=(*_SILENT, "CK308")),
    Legal("groups without names whose shapes tell who is in which", grouped_without_names, silent=_SILENT),
    Legal("tied weights of which one is stored", lambda folder: tied_weights(folder, head=False), silent=_SILENT),
    Legal("tied weights that are stored twice and equal", lambda folder: tied_weights(folder, equal=True),
          silent=_SILENT),
    Legal("weights that the configuration does not tie", lambda folder: tied_weights(folder, tied=False),
          silent=_SILENT),
)  # fmt: skip
