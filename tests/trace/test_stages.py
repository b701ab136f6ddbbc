"""Every stage of a step is sampled when it should be: expected digests are taken by the step itself."""

import json
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim.optimizer import register_optimizer_step_post_hook

from ckptcheck.experiment.run import Run
from ckptcheck.trace.items import END, LOAD, NONE, NONZERO, SAVED, STEP, ZERO, Item
from tests.trace.recording import kind, names, of, of_text, record, step_samples


def backward(model, inputs=None, scale=1.0):
    loss = (model(torch.ones(4, 2) if inputs is None else inputs) ** 2).mean() * scale
    loss.backward()
    return loss


def grads(samples):
    return {(item.name, item.part): sample for item, sample in kind(samples, "grad").items()}


# rng


def test_generators_are_sampled_when_the_step_begins(tmp_path):
    seen = []

    def step(_):
        seen.append((torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()))
        torch.rand(3), random.random(), np.random.rand()

    trace = record(tmp_path, Run(nn.Linear(2, 1), step), steps=3)
    digests = {
        name: [trace.digest(n, STEP, Item("rng", name)) for n in (1, 2, 3)] for name in ("torch", "numpy", "python")
    }
    assert digests["torch"] == [of(state) for state, _, _ in seen]
    assert digests["python"] == [of_text(repr(repr(state))) for _, state, _ in seen]
    assert len(set(digests["numpy"])) == 3 == len({keys + bytes([n]) for n, (*_, keys) in enumerate(seen)})
    assert trace.digest(3, END, Item("rng", "torch")) == of(torch.get_rng_state())
    assert all(sample.value is None for sample in kind(trace.samples(1, STEP), "rng").values())


def test_a_generator_of_numpy_of_another_kind_is_sampled(tmp_path):
    legacy = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        trace = record(tmp_path, Run(nn.Linear(2, 1), lambda _: np.random.rand() and None), steps=2)
        digests = [trace.digest(step, STEP, Item("rng", "numpy")) for step in (1, 2)]
        assert None not in digests and digests[0] != digests[1]
    finally:
        np.random.set_bit_generator(legacy)


# hyperparameters


def test_hyperparameters_are_those_that_the_update_uses(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def step(_):
        backward(model)
        optimizer.step()
        scheduler.step()

    trace = record(tmp_path, Run(model, step, optimizer, scheduler), steps=3)
    values = [trace.samples(n, STEP)[Item("hyper", "", "lr", 0, 0)].value for n in (1, 2, 3)]
    assert values == [0.1, 0.05, 0.025]
    ends = [trace.samples(n, STEP)[Item("schedule", "_last_lr[0]")].value for n in (1, 2, 3)]
    assert ends == [0.05, 0.025, 0.0125]


def test_every_value_of_every_group_is_sampled_but_its_members(tmp_path):
    model = nn.Linear(2, 1)
    groups = [
        {"params": [("w", model.weight)], "lr": torch.tensor(0.25)},
        {"params": [("b", model.bias)], "mine": {"a": [1]}},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.5)
    samples = step_samples(tmp_path, lambda _: optimizer.step(), model=model, optimizer=optimizer)
    seen = {(item.group, item.key): sample for item, sample in kind(samples, "hyper").items()}
    assert seen[0, "lr"].digest == of(torch.tensor(0.25)) and seen[0, "lr"].value == 0.25
    assert (seen[1, "lr"].value, seen[1, "mine.a[0]"].value, seen[1, "betas[1]"].value) == (0.5, 1, 0.999)
    keys = {key.split("[")[0].split(".")[0] for _, key in seen}
    assert keys == set(optimizer.param_groups[1]) - {"params", "param_names"} | {"mine"}


def test_hyperparameters_are_sampled_at_the_end_of_a_step_without_update(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = step_samples(tmp_path, lambda _: None, model=model, optimizer=optimizer)
    assert samples[Item("hyper", "", "lr", 0, 0)].value == 0.1


def test_who_is_in_which_group_and_what_is_frozen_are_sampled(tmp_path):
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    stray = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [stray, model.bias]}], lr=0.1)
    for step in (lambda _: optimizer.step(), lambda _: None):
        trace = record(tmp_path, Run(model, step, optimizer))
        samples = kind(trace.samples(1, STEP), "structure")
        texts = {item.name: json.loads(trace.text(sample.digest)) for item, sample in samples.items()}
        assert texts == {"groups": [{"class": "SGD", "groups": [["weight"], [None, "bias"]]}], "frozen": ["bias"]}


# inputs


def inputs_of(samples):
    return {(item.name, item.key, item.part): sample.digest for item, sample in kind(samples, "inputs").items()}


class Outer(nn.Sequential):
    def forward(self, *args, **kwargs):
        return self[0](*args, **kwargs)


class Odd(nn.Module):
    def forward(self, x, *, mask=None, more=None, flag=True):
        return x.sum() + sum(more["list"]) * mask.sum()


def test_what_enters_the_outermost_module_is_sampled_by_call_and_argument(tmp_path):
    one, two, three = torch.rand(2, 2), torch.rand(1), torch.rand(3)
    model = Outer(Outer(Odd()))

    def step(_):
        for more in (two, three):
            model(one, mask=three, more={"list": [more]}, flag=False)

    assert inputs_of(step_samples(tmp_path, step, model=model)) == {
        ("", key, part): digest
        for part, more in enumerate((two, three))
        for key, digest in {
            "0": of(one), "mask": of(three), "more.list[0]": of(more), "flag": of_text("False"),
        }.items()
    }  # fmt: skip


def test_where_the_root_is_never_called_the_outermost_module_that_is_counts(tmp_path):
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(2, 3)), "decoder": nn.Linear(3, 1)})
    entered = []

    def step(_):
        x = torch.rand(4, 2)
        hidden = model["encoder"](x)
        entered.extend([x, hidden])
        model["decoder"](hidden)
        model["decoder"](hidden)

    samples = step_samples(tmp_path, step, model=model)
    assert inputs_of(samples) == {
        ("encoder", "0", 0): of(entered[0]), ("decoder", "0", 0): of(entered[1]), ("decoder", "0", 1): of(entered[1]),
    }  # fmt: skip


def test_inputs_are_taken_as_they_enter_even_if_the_model_changes_them(tmp_path):
    class InPlace(nn.Module):
        def forward(self, x):
            return x.mul_(0)

    model = InPlace()

    def step(_):
        model(torch.ones(3))

    samples = step_samples(tmp_path, step, model=model)
    assert inputs_of(samples)["", "0", 0] == of(torch.ones(3))


@pytest.mark.parametrize("wrap", [nn.DataParallel, nn.Identity], ids=["DataParallel", "plain"])
def test_a_wrapped_model_has_the_inputs_of_the_plain_one(tmp_path, wrap):
    model = nn.Linear(2, 1)
    called = wrap(model) if wrap is nn.DataParallel else model
    samples = step_samples(tmp_path, lambda _: backward(called), model=called)
    assert inputs_of(samples) == {("", "0", 0): of(torch.ones(4, 2))}


def test_after_a_forward_that_raised_the_next_call_is_outermost_again(tmp_path):
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 1)

        def forward(self, x):
            return self.inner(x)

    model = Failing()

    def step(_):
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 3))
        model(torch.ones(1, 2))

    assert inputs_of(step_samples(tmp_path, step, model=model)) == {
        ("", "0", 0): of(torch.ones(3, 3)), ("", "0", 1): of(torch.ones(1, 2)),
    }  # fmt: skip


def test_a_forward_outside_of_a_step_is_not_sampled(tmp_path):
    model = nn.Linear(2, 1)

    class Evaluating:
        def state_dict(self):
            model(torch.ones(1, 2)), backward(model)
            return {}

    trace = record(tmp_path, Run(model, lambda _: None, data=Evaluating()), steps=1)
    assert kind(trace.samples(1, STEP), "inputs") == {} == kind(trace.samples(1, STEP), "loss")


def test_calls_beyond_64_are_counted_as_the_last(tmp_path):
    model = nn.Linear(2, 1)
    samples = step_samples(
        tmp_path, lambda _: [model(torch.full((1, 2), float(n))) for n in range(70)] and None, model=model
    )
    seen = inputs_of(samples)
    assert sorted(part for *_, part in seen) == list(range(64))
    assert seen["", "0", 63] == of(torch.full((1, 2), 69.0))


def test_inputs_inside_of_torch_func_are_sampled(tmp_path):
    model, x = nn.Linear(2, 1), torch.rand(3, 2)
    parameters = dict(model.named_parameters())

    def loss(values, one):
        return torch.func.functional_call(model, values, (one,)).sum()

    def step(_):
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)

    assert inputs_of(step_samples(tmp_path, step, model=model)) == {("", "0", 0): of(x)}


# buffers


def test_buffers_are_sampled_after_the_update_even_where_the_step_puts_new_ones_in_their_place(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.register_buffer("seen", torch.zeros(2), persistent=False)

        def forward(self, x):
            self.seen = self.seen + x.sum(0)
            return self.norm(x)

    model = Counting()
    seen = []

    def step(_):
        model(torch.rand(4, 2))
        seen.append({name: of(buffer) for name, buffer in model.named_buffers()})

    trace = record(tmp_path, Run(model, step), steps=2)
    for n in (1, 2):
        samples = kind(trace.samples(n, STEP), "buffer")
        assert {item.name: sample.digest for item, sample in samples.items()} == seen[n - 1]
    assert seen[0] != seen[1]


def test_parameters_that_the_step_puts_in_the_place_of_others_are_sampled(tmp_path):
    model = nn.Linear(2, 1)

    def step(_):
        model.weight = nn.Parameter(torch.full((1, 2), 7.0))

    samples = step_samples(tmp_path, step, model=model)
    assert samples[Item("param", "weight")].digest == of(torch.full((1, 2), 7.0))


# loss


@pytest.mark.parametrize(("returned", "path", "digest"), [
    (0.5, "", of_text("0.5")), (torch.tensor(0.5), "", of(torch.tensor(0.5))), ({"a": 1}, "a", of_text("1")),
    ((2.0, 1), "[0]", of_text("2.0")),
], ids=str)  # fmt: skip
def test_the_value_that_the_step_returns_is_the_loss(tmp_path, returned, path, digest):
    samples = step_samples(tmp_path, lambda _: returned, model=nn.Linear(1, 1))
    assert samples[Item("loss", "returned", path)].digest == digest


def test_each_tensor_on_which_backward_is_called_is_a_loss(tmp_path):
    model, losses = nn.Linear(2, 1), []

    def step(_):
        losses.append(backward(model).detach())
        pair = [model(torch.ones(1, 2)).sum(), model(torch.zeros(1, 2)).sum()]
        torch.autograd.backward(pair)
        losses.extend(one.detach() for one in pair)
        torch.autograd.backward(tensors=(one for one in [model(torch.ones(1, 2)).sum()]))

    samples = kind(step_samples(tmp_path, step, model=model), "loss")
    assert [(item.name, item.part) for item in sorted(samples)] == [("backward", n) for n in range(4)]
    assert [samples[item].digest for item in sorted(samples)][:3] == [of(one) for one in losses]
    assert model.bias.grad.item() == pytest.approx(2 * sum(model(torch.ones(4, 2)).detach().flatten()) / 4 + 3)


def test_backward_from_an_edge_of_the_graph_still_works(tmp_path):
    from torch.autograd.graph import get_gradient_edge

    x = torch.ones(1, requires_grad=True)

    def step(_):
        torch.autograd.backward(get_gradient_edge(x * 3), torch.ones(1))
        torch.autograd.backward([get_gradient_edge(x * 4)], [torch.ones(1)])

    samples = step_samples(tmp_path, step, model=nn.Linear(1, 1))
    assert x.grad.item() == 7 and kind(samples, "loss") == {}


# grad


def test_gradients_are_sampled_before_the_user_clears_them(tmp_path):
    model, seen = nn.Linear(2, 1), {}
    optimizer = torch.optim.Adam(model.parameters())

    def step(_):
        backward(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        seen.update({name: of(one.grad) for name, one in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()

    found = grads(step_samples(tmp_path, step, model=model, optimizer=optimizer))
    assert {name: found[name, 0].digest for name in seen} == seen and len(found) == 2
    assert {sample.presence for sample in found.values()} == {NONZERO}


def test_none_zero_and_nonzero_gradients_are_told_apart(tmp_path):
    model = nn.ParameterDict({name: nn.Parameter(torch.ones(3)) for name in ("none", "zero", "tiny", "frozen")})
    model["frozen"].requires_grad_(False)
    optimizer = torch.optim.SGD(list(model.values()), lr=0.1)

    def step(_):
        model["zero"].grad = torch.zeros(3)
        model["tiny"].grad = torch.tensor([0, 1e-45, 0])
        optimizer.step()

    found = grads(step_samples(tmp_path, step, model=model, optimizer=optimizer))
    presence = {name: sample.presence for (name, _), sample in found.items()}
    assert presence == {"none": NONE, "zero": ZERO, "tiny": NONZERO, "frozen": NONE}


def test_gradients_made_inside_of_the_step_by_a_closure_are_the_ones_that_it_read_last(tmp_path):
    model, seen = nn.Linear(2, 1), []
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = backward(model)
        seen.append((loss.detach().clone(), model.weight.grad.clone()))
        return loss

    def step(_):
        optimizer.step(closure)
        optimizer.zero_grad()

    samples = step_samples(tmp_path, step, model=model, optimizer=optimizer)
    assert grads(samples)["weight", 0].digest == of(seen[-1][1]) and len(seen) > 1
    losses = kind(samples, "loss")
    assert [losses[item].digest for item in sorted(losses)] == [of(loss) for loss, _ in seen]
    assert len(kind(samples, "inputs")) == len(seen)
    assert samples[Item("updates", optimizer=0)].value == 1
    assert samples[Item("state", "weight", "n_iter", 0)].value >= 1


def test_gradients_of_hand_written_updates_are_sampled_though_they_are_cleared(tmp_path):
    model, seen = nn.Linear(2, 1), {}

    def step(_):
        backward(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                seen[name] = of(parameter.grad)
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None

    samples = step_samples(tmp_path, step, model=model, optimizer=None)
    assert {name: sample.digest for (name, _), sample in grads(samples).items()} == seen
    assert kind(samples, "updates") == {} and kind(samples, "hyper") == {}


def test_a_hand_written_update_beside_an_optimizer_has_its_gradients_too(tmp_path):
    model, seen = nn.Linear(2, 1), {}
    optimizer = torch.optim.SGD([model.bias], lr=0.1)

    def step(_):
        backward(model)
        seen.update(weight=of(model.weight.grad), bias=of(model.bias.grad))
        model.weight.data -= model.weight.grad
        optimizer.step()
        model.zero_grad()

    found = grads(step_samples(tmp_path, step, model=model, optimizer=optimizer))
    assert {name: sample.digest for (name, _), sample in found.items()} == seen


def test_a_micro_batch_without_update_leaves_what_it_accumulated(tmp_path):
    model, seen = nn.Linear(2, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(n):
        backward(model, scale=n)
        seen.append(of(model.weight.grad))
        if n % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()

    trace = record(tmp_path, Run(model, step, optimizer), steps=4)
    for n in range(1, 5):
        samples = trace.samples(n, STEP)
        assert grads(samples)["weight", 0].digest == seen[n - 1]
        assert samples[Item("updates", optimizer=0)].value == (n + 1) % 2
    params = [trace.digest(n, STEP, Item("param", "weight")) for n in range(1, 5)]
    assert params[1] == params[2] and len(set(params)) == 3
    assert kind(trace.samples(1, STEP), "state") == {} and kind(trace.samples(2, STEP), "state") != {}


def test_an_optimizer_that_steps_twice_has_both_gradients_and_both_hyperparameters(tmp_path):
    model, seen = nn.Linear(2, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_):
        for _ in range(2):
            optimizer.zero_grad()
            backward(model)
            seen.append(of(model.weight.grad))
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5

    samples = step_samples(tmp_path, step, model=model, optimizer=optimizer)
    assert [grads(samples)["weight", part].digest for part in (0, 1)] == seen
    assert [samples[Item("hyper", "", "lr", 0, 0, part)].value for part in (0, 1)] == [0.1, 0.05]
    assert samples[Item("updates", optimizer=0)].value == 2


def test_two_optimizers_are_told_apart(tmp_path):
    model, seen = nn.ModuleDict({"g": nn.Linear(2, 1), "d": nn.Linear(2, 1)}), {}
    optimizers = [torch.optim.Adam(model["g"].parameters(), lr=0.1), torch.optim.SGD(model["d"].parameters(), lr=0.2)]

    def step(_):
        for name, optimizer in zip("dg", reversed(optimizers), strict=True):
            model.zero_grad()
            backward(model[name])
            seen[name] = of(model[name].weight.grad)
            optimizer.step()

    samples = step_samples(tmp_path, step, model=model, optimizer=optimizers)
    assert {name: grads(samples)[f"{name}.weight", 0].digest for name in "gd"} == seen
    assert [samples[Item("hyper", "", "lr", place, 0)].value for place in (0, 1)] == [0.1, 0.2]
    assert {item.optimizer for item in kind(samples, "state")} == {0}
    assert {item.name for item in kind(samples, "state")} == {"g.weight", "g.bias"}


def test_two_models_in_a_dict_are_named_by_their_keys(tmp_path):
    models = {"g": nn.Linear(2, 1), "d": nn.BatchNorm1d(2)}
    samples = step_samples(tmp_path, lambda _: backward(models["g"]), model=models)
    assert names(samples, "param") == ["d.bias", "d.weight", "g.bias", "g.weight"]
    assert names(samples, "inputs") == ["g"]
    assert "d.running_mean" in names(samples, "buffer")


def test_a_step_inside_of_a_step_is_one_update(tmp_path):
    class Calling(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = nn.Linear(2, 1)
    torch.optim.SGD(model.parameters(), lr=0.1)  # torch wraps the step of a class when it is first made
    optimizer = Calling(model.parameters(), lr=0.1)
    calls = []
    handle = register_optimizer_step_post_hook(lambda *_: calls.append(1))
    try:
        samples = step_samples(
            tmp_path, lambda _: backward(model) and optimizer.step(), model=model, optimizer=optimizer
        )
    finally:
        handle.remove()
    assert len(calls) == 2
    assert samples[Item("updates", optimizer=0)].value == 1
    assert {part for _, part in grads(samples)} == {0}


def test_updates_of_an_optimizer_that_the_run_does_not_name_are_not_counted(tmp_path):
    model = nn.Linear(2, 1)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = step_samples(tmp_path, lambda _: other.step(), model=model)
    assert kind(samples, "updates") == {} and kind(samples, "hyper") == {}


def test_an_optimizer_behind_a_wrapper_is_the_one_that_the_run_names(tmp_path):
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer, self.param_groups, self.state = optimizer, optimizer.param_groups, optimizer.state

    model = nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    samples = step_samples(tmp_path, lambda _: backward(model) and inner.step(), model=model, optimizer=Wrapper(inner))
    assert samples[Item("updates", optimizer=0)].value == 1
    assert {item.name for item in kind(samples, "state")} == {"weight", "bias"}


# scaler


@pytest.mark.parametrize("fused", [False, True], ids=["for", "fused"])
def test_an_update_that_the_scaler_skips_is_no_update(tmp_path, fused):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)

    def step(n):
        optimizer.zero_grad()
        scaler.scale((model(torch.ones(1, 2)) * (float("inf") if n == 2 else 1)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    trace = record(tmp_path, Run(model, step, optimizer, scaler=scaler), steps=3)
    samples = [trace.samples(n, STEP) for n in (1, 2, 3)]
    assert [one[Item("updates", optimizer=0)].value for one in samples] == [1, 0, 1]
    assert [one[Item("scaler", "scale")].value for one in samples] == [8.0, 4.0, 8.0]
    assert [one[Item("state", "weight", "step", 0)].value for one in samples] == [1.0, 1.0, 2.0]
    assert all(
        Item("hyper", "", "lr", 0, 0) in one and grads(one).keys() == {("weight", 0), ("bias", 0)} for one in samples
    )
    assert not np.isfinite(grads(samples[1])["weight", 0].norm)


# state, param, and what has a state_dict


def test_state_and_parameters_are_sampled_after_the_update(tmp_path):
    model, seen = nn.Linear(2, 1), []
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)

    def step(_):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        state = {
            (name, key): of(value)
            for name, one in model.named_parameters()
            for key, value in optimizer.state[one].items()
        }
        seen.append((state, {name: of(one) for name, one in model.named_parameters()}))

    trace = record(tmp_path, Run(model, step, optimizer), steps=2)
    for n in (1, 2):
        samples = trace.samples(n, STEP)
        assert {(item.name, item.key): one.digest for item, one in kind(samples, "state").items()} == seen[n - 1][0]
        assert {item.name: one.digest for item, one in kind(samples, "param").items()} == seen[n - 1][1]
    assert samples[Item("state", "bias", "step", 0)].value == 2.0


def test_state_of_tensors_that_the_model_does_not_hold_is_named_by_its_place(tmp_path):
    model = nn.Linear(2, 1)
    strays = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": strays}], lr=0.1, momentum=0.9)
    for one in optimizer.param_groups[0]["params"] + strays:
        one.grad = torch.ones_like(one)
    optimizer.step()
    del optimizer.param_groups[1]["params"][1:]
    optimizer.state["global"] = {"k": 3}
    samples = step_samples(tmp_path, lambda _: None, model=model, optimizer=optimizer)
    assert names(samples, "state") == sorted([
        "weight", "global", "<group 1, index 0: not in the model>", "<group -1, index 2: not in the model>",
        "<group -1, index 3: not in the model>",
    ])  # fmt: skip


def test_everything_with_a_state_dict_is_sampled_when_the_step_ends(tmp_path):
    class Counter:
        def __init__(self):
            self.at = 0

        def state_dict(self):
            return {"at": self.at, "order": list(range(100)), "t": torch.tensor([self.at, 1.5])}

    model, one, two = nn.Linear(2, 1), Counter(), Counter()
    averaged = torch.optim.swa_utils.AveragedModel(model)

    def step(n):
        averaged.update_parameters(model)
        one.at, two.at = n, 2 * n

    run = Run(model, step, ema=averaged, data=[one, two], extra={"mine": one, "plain": {"x": 1}})
    samples = record(tmp_path, run, steps=2).samples(2, STEP)
    assert samples[Item("ema", "n_averaged")].value == 2
    assert samples[Item("ema", "module.weight")].digest == of(averaged.module.weight)
    assert [samples[Item("data", f"[{n}].at")].value for n in (0, 1)] == [2, 4]
    assert samples[Item("data", "[0].order")].digest == of_text(repr(list(range(100))))
    assert samples[Item("extra", "mine.t")].digest == of(torch.tensor([2, 1.5]))
    assert samples[Item("extra", "plain.x")].value == 1


# whole states and taps


def test_the_whole_state_is_sampled_at_load_with_ties_modes_and_flags(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Dropout(), nn.Linear(2, 2, bias=False))
    model[2].weight = model[0].weight
    model[1].eval()
    model[0].weight.grad = torch.zeros(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trace = record(tmp_path, Run(model, lambda _: None, optimizer))
    samples = trace.samples(0, LOAD)
    assert grads(samples)["0.weight", 0].presence == ZERO
    texts = {item.name: json.loads(trace.text(one.digest)) for item, one in kind(samples, "structure").items()}
    assert texts["ties"] == {"0.weight": ["2.weight"]} and texts["eval"] == ["1"] and texts["replaced"] == []
    assert texts["flags"]["num_threads"] == torch.get_num_threads()
    assert {"rng", "param", "grad", "hyper", "structure"} == {item.kind for item in samples}


def test_a_tap_gets_every_dense_tensor_of_a_moment_alive(tmp_path):
    model, tapped = nn.Embedding(4, 2, sparse=True), []
    optimizer = torch.optim.SparseAdam(model.parameters())

    def tap(step, moment, item, tensor):
        tapped.append((step, moment, item, of(tensor)))

    def step(_):
        F.mse_loss(model(torch.tensor([1, 2])), torch.zeros(2, 2)).backward()
        optimizer.step()

    run = Run(model, step, optimizer, extra={"sparse": {"t": torch.eye(2).to_sparse()}})
    trace = record(tmp_path, run, tap=tap)
    for n, moment in ((0, LOAD), (1, STEP)):
        samples = trace.samples(n, moment)
        dense = {item for item, one in samples.items() if one.spec is not None and item.kind not in ("grad", "extra")}
        assert {item: digest for s, m, item, digest in tapped if (s, m) == (n, moment)} == {
            item: samples[item].digest for item in dense
        }
    assert grads(trace.samples(1, STEP))["weight", 0].presence == NONZERO


def test_lazy_modules_are_recorded_before_and_after_they_have_a_shape(tmp_path):
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    trace = record(tmp_path, Run(model, lambda _: backward(model, torch.rand(4, 2))), steps=2)
    weight = Item("param", "0.weight")
    assert trace.samples(0, LOAD)[weight].spec is None
    assert trace.samples(1, STEP)[weight].spec.shape == (3, 2)
    assert {trace.samples(n, STEP)[Item("grad", "0.weight")].presence for n in (1, 2)} == {NONZERO}


def test_moments_around_a_save_are_whole_states(tmp_path):
    from ckptcheck.state.digest import XXH3_128
    from ckptcheck.trace.file import Trace, TraceWriter
    from ckptcheck.trace.recorder import Recorder
    from ckptcheck.trace.subjects import from_run

    schedules = [torch.optim.lr_scheduler.StepLR(torch.optim.SGD(nn.Linear(1, 1).parameters()), 1) for _ in range(2)]
    run = Run(nn.Linear(2, 1), lambda _: None, scheduler=schedules[0], data={"a": 1})
    writer = TraceWriter(tmp_path / "x.trace", {"digest": XXH3_128})
    recorder = Recorder(from_run(run), writer, XXH3_128)
    recorder.built(4)
    run.scheduler = schedules[1]
    recorder.load(4)
    run.model.weight.data.fill_(3)
    recorder.saved(5)
    run.model.weight.data.fill_(4)
    recorder.after_save(5)
    writer.close(True)
    trace = Trace(tmp_path / "x.trace")
    assert list(trace.moments) == [(4, "built"), (4, LOAD), (5, SAVED), (5, "after-save")]
    weights = [trace.digest(*moment, Item("param", "weight")) for moment in ((5, SAVED), (5, "after-save"))]
    assert weights == [of(torch.full((1, 2), 3.0)), of(torch.full((1, 2), 4.0))]
    assert trace.text(trace.digest(4, LOAD, Item("structure", "replaced"))) == '["schedule"]'
    assert recorder.cost_s > 0
