"""From what a script does to the steps of a trace."""

import random

import pytest
import torch
from torch import nn

from ckptcheck.trace.items import END, LOAD, NONE, NONZERO, Item
from tests.trace.recording import of, of_text
from tests.trace.script.recorded import batch, kinds, model, record, steps

LR = Item("hyper", "", "lr", 0, 0)


def test_every_sample_of_a_plain_loop_is_what_the_script_had_at_its_place(tmp_path):
    seen = []

    def script():
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for number in range(3):
            torch.rand(2), random.random()
            data = batch(number)
            here = {"rng": of(torch.get_rng_state()), "python": of_text(repr(random.getstate())), "inputs": of(data)}
            optimizer.zero_grad()
            loss = net(data).square().sum()
            loss.backward()
            here |= {"loss": of(loss), "grad": of(net[0].weight.grad), "lr": schedule.get_last_lr()[0]}
            optimizer.step()
            schedule.step()
            with torch.no_grad():  # weights clipped after the update are what the step leaves
                net[0].weight.clamp_(-0.2, 0.2)
            here |= {"param": of(net[0].weight), "state": of(optimizer.state[net[0].weight]["exp_avg"])}
            here |= {"epoch": schedule.last_epoch}
            seen.append(here)

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3] and trace.ended
    for here, samples in zip(seen, steps(trace), strict=True):
        assert samples[Item("rng", "torch")].digest == here["rng"]
        assert samples[Item("inputs", "", "0")].digest == here["inputs"]
        assert samples[Item("loss", "backward")].digest == here["loss"]
        assert samples[Item("grad", "0.weight")].digest == here["grad"]
        assert samples[LR].value == here["lr"]
        assert samples[Item("param", "0.weight")].digest == here["param"]
        assert samples[Item("state", "0.weight", "exp_avg", 0)].digest == here["state"]
        assert samples[Item("schedule", "last_epoch")].value == here["epoch"]
        assert samples[Item("updates", optimizer=0)].value == 1
    assert trace.samples(3, END)[Item("rng", "torch")].digest == of(torch.get_rng_state())


def test_the_load_is_the_state_before_the_first_forward_pass_with_the_rates_of_the_first_update(tmp_path):
    seen = {}

    def script():
        net = model(0, nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for number in range(2):
            if not number:
                seen.update(rng=of(torch.get_rng_state()), mean=of(net[2].running_mean), weight=of(net[0].weight))
            net(batch(number)).sum().backward()
            optimizer.param_groups[0]["lr"] = 0.25
            optimizer.step()

    load = record(tmp_path, script).samples(0, LOAD)
    assert load[Item("rng", "torch")].digest == seen["rng"]
    assert load[Item("buffer", "2.running_mean")].digest == seen["mean"]
    assert load[Item("param", "0.weight")].digest == seen["weight"]
    assert load[LR].value == 0.25
    assert not kinds(load, "state")


def test_what_is_loaded_after_a_first_forward_pass_is_the_load(tmp_path):
    other = model(1)

    def script():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(batch(0))  # to make lazy parts, to print a summary
        net.load_state_dict(other.state_dict())
        net(batch(1)).sum().backward()
        optimizer.step()

    trace = record(tmp_path, script)
    assert trace.samples(0, LOAD)[Item("param", "0.weight")].digest == of(other[0].weight)
    assert kinds(steps(trace)[0], "inputs")[".0"].digest == of(batch(1))
    assert len(kinds(steps(trace)[0], "inputs")) == 1


def accumulation(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(4):
        net(batch(number)).sum().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def closure_of_lbfgs(net):
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2, lr=0.01)
    for number in range(2):

        def closure(data=batch(number)):  # noqa: B008
            optimizer.zero_grad()
            loss = net(data).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)


def everything_inside_of_step(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for number in range(2):

        def closure(data=batch(number)):  # noqa: B008
            loss = net(data).square().sum()
            optimizer.zero_grad()
            loss.backward()

        optimizer.step(closure)


def updates_in_backward(net):
    optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in net.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for number in range(2):
        net(batch(number)).square().sum().backward()


def two_optimizers_after_one_backward(net):
    optimizers = [torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.Adam(net[2].parameters(), lr=0.1)]
    for number in range(2):
        net(batch(number)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def a_subclass_that_calls_the_step_it_overrides(net):
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    optimizer = Own(net.parameters(), lr=0.1)
    torch.optim.SGD(model(5).parameters(), lr=0.1)  # from here on torch tells twice
    for number in range(2):
        net(batch(number)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("script", "forwards", "updates"),
    [
        (accumulation, 2, 1),
        (closure_of_lbfgs, 2, 1),
        (everything_inside_of_step, 1, 1),
        (updates_in_backward, 1, 4),
        (two_optimizers_after_one_backward, 1, 2),
        (a_subclass_that_calls_the_step_it_overrides, 1, 1),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_two_iterations_are_two_steps(tmp_path, script, forwards, updates):
    net = model()
    trace = record(tmp_path, lambda: script(net))
    assert trace.steps == [1, 2]
    for samples in steps(trace):
        assert len(kinds(samples, "inputs")) == forwards
        assert len(kinds(samples, "updates") or []) or updates
        assert sum(sample.value for item, sample in samples.items() if item.kind == "updates") == updates
        assert len({item.optimizer for item in samples if item.kind == "hyper"}) == updates
        assert {sample.presence for item, sample in samples.items() if item.kind == "grad"} == {NONZERO}
        assert len(kinds(samples, "grad")) == 4
    assert steps(trace)[1][Item("param", "0.weight")].digest == of(net[0].weight)
    assert steps(trace)[0][Item("param", "0.weight")].digest != of(net[0].weight)


@pytest.mark.parametrize(("critic", "expected"), [(1, ["DG", "DG"]), (3, ["D", "D", "DG", "D", "D", "DG"])])
def test_a_discriminator_and_a_generator_make_one_step_together(tmp_path, critic, expected):
    def script():
        generator, discriminator = model(0), nn.Linear(2, 1)
        first = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        second = torch.optim.SGD(generator.parameters(), lr=0.1)
        for number in range(2):
            for _ in range(critic):
                first.zero_grad()
                discriminator(generator(batch(number)).detach()).sum().backward()
                first.step()
            second.zero_grad()
            discriminator(generator(batch(number))).sum().backward()
            second.step()

    trace = record(tmp_path, script)
    found = []
    for samples in steps(trace):
        applied = {item.optimizer: sample.value for item, sample in samples.items() if item.kind == "updates"}
        found.append("D" * applied[0] + "G" * applied[1])
        assert len(kinds(samples, "inputs")) == 2 * len(found[-1])
        assert len(kinds(samples, "loss")) == len(found[-1])
    assert found == expected


class Overflow(torch.autograd.Function):
    """Passes on; its gradient is infinite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("inf")


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_leaves_nothing_but_its_inputs(tmp_path, fused):
    net = model()

    def script():
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number in range(4):
            # The rate that a skipped update would have had must not stay.
            optimizer.param_groups[0]["lr"] = (0.1, 0.9, 0.2, 0.3)[number]
            optimizer.param_groups[0].pop("odd", None)
            optimizer.param_groups[0] |= {"odd": 1} if number == 1 else {}
            optimizer.zero_grad()
            out = net(batch(number))
            scaler.scale((Overflow.apply(out) if number == 1 else out).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3]
    assert [len(kinds(one, "inputs")) for one in steps(trace)] == [1, 2, 1]
    assert [kinds(one, "hyper")[".lr"].value for one in steps(trace)] == [0.1, 0.2, 0.3]
    assert not any(item.key == "odd" for one in steps(trace) for item in one)
    assert [kinds(one, "state")["0.weight.step"].value for one in steps(trace)] == [1, 2, 3]
    assert [kinds(one, "scaler")["scale"].value for one in steps(trace)] == [4.0, 2.0, 2.0]


@pytest.mark.parametrize("first", [True, False], ids=["in its own step", "in the step of another"])
def test_an_update_that_turns_out_to_be_none_when_it_returns_is_taken_back(tmp_path, first):
    class Skips(torch.optim.SGD):
        def step(self, closure=None):
            if skip:
                self.found_inf = torch.ones(())
            else:
                super().step(closure)

    skip = False

    def script():
        nonlocal skip
        net, other = model(), model(1)
        one, two = Skips(net.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
        for number in range(4):
            skip = number == 1
            order = [(net, one), (other, two)]
            for part, optimizer in order if first else reversed(order):
                optimizer.zero_grad()
                part(batch(number)).sum().backward()
                optimizer.param_groups[0]["lr"] = 0.5 if skip else 0.1
                optimizer.step()
                vars(optimizer).pop("found_inf", None)

    trace = record(tmp_path, script)
    applied = [[sample.value for item, sample in sorted(one.items()) if item.kind == "updates"] for one in steps(trace)]
    # Where the skipped one would have begun the step, the other begins it; the next of the skipped one joins.
    assert applied == ([[1, 1]] * 3 + [[0, 1]] if first else [[1, 1], [0, 1], [1, 1], [1, 1]])


def test_a_step_that_raises_counts_for_none_and_the_next_one_has_its_number(tmp_path):
    def script():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def closure():
            raise ArithmeticError

        for number in range(3):
            optimizer.zero_grad()
            net(batch(number)).sum().backward()
            optimizer.param_groups[0]["lr"] = 0.1 * (number + 1)
            if number == 1:
                with pytest.raises(ArithmeticError):
                    optimizer.step(closure)
            else:
                optimizer.step()

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2]
    assert [round(one[LR].value, 3) for one in steps(trace)] == [0.1, 0.3]
    assert any("raised" in note for note in trace.header["notes"])


def test_an_evaluation_that_leaves_gradients_enabled_is_no_part_of_a_step(tmp_path):
    seen = []

    def script(evaluate):
        net, criterion = model(0, nn.Dropout(0.5)), nn.MSELoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(3):
            if evaluate:
                net.eval()
                criterion(net(batch(9)), torch.zeros(5, 2))
                torch.manual_seed(number)
                net.train()
            else:
                torch.manual_seed(number)
            seen.append(of(torch.get_rng_state()))
            optimizer.zero_grad()
            criterion(net(batch(number)), torch.zeros(5, 2)).backward()
            optimizer.step()

    with_it, without = (record(tmp_path / str(one), lambda one=one: script(one)) for one in (True, False))
    assert with_it.samples(0, LOAD) == without.samples(0, LOAD)
    assert [one[Item("rng", "torch")].digest for one in steps(with_it)] == seen[:3] == seen[3:]
    assert steps(with_it) == steps(without)


def test_a_model_that_trains_in_evaluation_mode_is_seen_all_the_same(tmp_path):
    seen = []

    def script():
        net = model(0, nn.Dropout(0.5)).eval()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(2):
            torch.rand(1)
            seen.append(of(torch.get_rng_state()))
            for part in (0, 1):
                net(batch(2 * number + part)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    trace = record(tmp_path, script)
    for number, samples in enumerate(steps(trace)):
        assert samples[Item("rng", "torch")].digest == seen[number]
        assert [one.digest for one in kinds(samples, "inputs").values()] == [
            of(batch(2 * number)), of(batch(2 * number + 1))
        ]  # fmt: skip


def test_transforms_of_the_data_begin_no_step(tmp_path):
    seen = []

    def script():
        net, noise = model(), nn.Dropout(0.5)  # a module without parameters, in training mode
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(2):
            data = noise(batch(number))
            seen.append((of(torch.get_rng_state()), of(data)))
            net(data).sum().backward()
            optimizer.step()

    for (rng, data), samples in zip(seen, steps(record(tmp_path, script)), strict=False):
        assert samples[Item("rng", "torch")].digest == rng
        assert [one.digest for one in kinds(samples, "inputs").values()] == [data]


def test_a_second_optimizer_over_the_same_parameters_goes_on_counting(tmp_path):
    net = model()

    def script():
        for kind in (torch.optim.SGD, torch.optim.Adam):
            optimizer = kind(net.parameters(), lr=0.1)
            for number in range(2):
                net(batch(number)).sum().backward()
                optimizer.step()

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3, 4]
    assert kinds(steps(trace)[3], "state")["0.weight.step"].value == 2
    assert steps(trace)[3][Item("param", "2.bias")].digest == of(net[2].bias)


def test_what_is_unfrozen_added_or_replaced_midway_is_recorded_from_then_on(tmp_path):
    def script():
        net = model()
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1)
        for number in range(4):
            if number == 1:
                net[0].requires_grad_(True)
                optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.01})
            if number == 2:
                net[0].weight = nn.Parameter(torch.ones(4, 3))
                optimizer.param_groups[1]["params"][0] = net[0].weight
            if number == 3:
                net.append(nn.Linear(2, 2))
                optimizer.add_param_group({"params": list(net[3].parameters())})
            net(batch(number)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    found = steps(record(tmp_path, script))
    presence = [kinds(one, "grad")["0.weight"].presence for one in found]
    assert presence == [NONE, NONZERO, NONZERO, NONZERO]
    assert [len({item.group for item in one if item.kind == "hyper"}) for one in found] == [1, 2, 2, 3]
    assert [len(kinds(one, "param")) for one in found] == [
        4,
        4,
        6,
        6,
    ]  # a step leaves what stands when the next one begins


def test_a_forward_pass_after_the_last_update_does_not_take_the_last_step_away(tmp_path):
    net = model()

    def script():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(2):
            net(batch(number)).sum().backward()
            optimizer.step()
        net(batch(7))

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2]
    assert len(kinds(steps(trace)[1], "inputs")) == 1
    assert steps(trace)[1][Item("param", "0.weight")].digest == of(net[0].weight)


def test_who_computes_gradients_and_never_updates_leaves_no_trace(tmp_path):
    from tests.trace.script.recorded import recording

    with recording(tmp_path / "traces"):
        net = model()
        torch.optim.SGD(net.parameters(), lr=0.1)
        net(batch(0)).sum().backward()
    assert not (tmp_path / "traces").exists()
