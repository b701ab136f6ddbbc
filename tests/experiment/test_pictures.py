"""What a page draws, from real runs: stages, gradient presence and group membership."""

import pytest

from ckptcheck.finding import Verdict

BODY = """
class Training:
    def __init__(self, ctx):
        torch.manual_seed(ctx.seed)
        self.model = nn.ModuleDict({"used": nn.Linear(3, 3), "idle": nn.Linear(3, 3), "zeroed": nn.Linear(3, 3),
                                    "frozen": nn.Linear(3, 3)})
        self.model["frozen"].requires_grad_(False)
        self.optimizer = self.made(list(self.model.parameters()))

    def made(self, parameters):
        groups = [{"params": parameters[:2], "weight_decay": 0.1}, {"params": parameters[2:], "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def step(self, s):
        self.optimizer.zero_grad()
        loss = self.model["used"](torch.full((2, 3), float(s))).square().mean()
        if s > 2:  # from step 3 on the gradient of what is multiplied by zero is zero, and was none before
            loss = loss + 0.0 * self.model["zeroed"](torch.ones(2, 3)).sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def load(self, path):
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.before_load()
        self.optimizer.load_state_dict(saved["optimizer"])

    def before_load(self):
        pass

    def run(self):
        return ckptcheck.Run(model=self.model, optimizer=self.optimizer, step=self.step, save=self.save, load=self.load,
                             freeze={"frozen.*": "hold"})

def build(ctx):
    return Training(ctx).run()

class Regrouped(Training):
    def before_load(self):
        parameters = list(self.model.parameters())
        self.optimizer = self.ours.optimizer = self.made([parameters[0], parameters[3], parameters[2], parameters[1],
                                                          *parameters[4:]])

def build_regrouped(ctx):
    training = Regrouped(ctx)
    training.ours = training.run()
    return training.ours
"""


@pytest.fixture
def sound(check, target):
    """A run that goes on exactly."""
    return check(target(BODY), steps=6, resume_at=[3])


def by_name(part, name):
    return {one[name]: one for one in part}


def test_a_run_that_goes_on_agrees_at_every_stage_that_there_is(sound):
    assert sound.verdict is Verdict.PASS
    (part,) = sound.parts["stages"]
    assert (part["run"], part["step"], part["steps"], part["shown"]) == ("resumed@3", 3, [4, 5, 6], 4)
    stages = by_name(part["stages"], "stage")
    # Eight parameters and their gradients; momentum for the two that were updated and the two whose gradient was zero.
    assert {name: stages[name]["compared"] for name in ("inputs", "buffers", "grad", "state", "param", "ema")} == {
        "inputs": 2, "buffers": 0, "grad": 8, "state": 4, "param": 8, "ema": 0}  # fmt: skip
    assert all(one["differing"] is None for one in part["stages"])
    load = by_name(part["load"], "section")
    assert load["param"] == {"section": "param", "compared": 8, "differing": 0}
    assert load["groups"] == {"section": "groups", "compared": 8, "differing": 0}
    assert load["grad"]["differing"] == 4  # what was left over when it was saved is not there after the load
    assert (part["open"], part["raised_step"]) == (None, None)


def test_none_zero_and_nonzero_gradients_are_told_apart_in_every_step(sound):
    (part,) = sound.parts["gradients"]
    assert (part["steps"], part["every"]) == ([1, 2, 3, 4, 5, 6], 1)
    rows = {name: row for row in part["rows"] for name in row["parameters"]}
    assert {name: (row["left"], row["right"], row["frozen"], row["contract"]) for name, row in rows.items()
            if name.endswith("weight")} == {
        "used.weight": ("++++++", None, None, None),
        "idle.weight": ("------", None, None, None),
        "zeroed.weight": ("--0000", None, None, None),
        "frozen.weight": ("------", None, "ffffff", "hold"),
    }  # fmt: skip
    assert len(part["rows"]) == 4


def test_groups_that_are_the_same_are_counted_and_not_listed(sound):
    (part,) = sound.parts["membership"]
    assert (part["class_name"], part["same_members"], part["same_order"], part["of"]) == ("SGD", True, True, [0, 1])
    assert [(one["size"], one["members"], one["options"]["weight_decay"]) for one in part["right"]] == [
        (2, None, 0.1), (6, None, 0.0)]  # fmt: skip


def test_groups_that_differ_stand_side_by_side_and_the_stages_say_where_it_breaks(check, target):
    result = check(target(BODY) + ":build_regrouped", steps=6, resume_at=[3])
    assert result.cause.code == "CK301"
    (part,) = result.parts["membership"]
    assert not part["same_members"]
    assert [one["members"][:2] for one in part["left"]] == [["used.weight", "used.bias"], ["idle.weight", "idle.bias"]]
    assert [one["members"][:2] for one in part["right"]] == [["used.weight", "idle.bias"], ["idle.weight", "used.bias"]]
    (strip,) = result.parts["stages"]
    load, stages = by_name(strip["load"], "section"), by_name(strip["stages"], "stage")
    assert load["groups"] == {"section": "groups", "compared": 8, "differing": 2}
    assert strip["shown"] == 4
    # used.bias decays no more; its momentum went to idle.bias, which has no gradient and rests.
    assert stages["param"]["differing"][0] == 1
    assert stages["param"]["differing"][1] == 2
    assert stages["grad"]["differing"] == [0, 2, 2]


def test_what_equal_runs_do_not_agree_in_is_left_open(check, target):
    body = BODY.replace(
        "torch.manual_seed(ctx.seed)", "torch.manual_seed(ctx.seed); self.noise = __import__('os').getpid()"
    )
    body = body.replace("loss.backward()", "loss = loss * (1 + self.noise % 997 * (s > 4)); loss.backward()")
    result = check(target(body), steps=6, resume_at=[3])
    assert result.cause.code == "CK611"
    (part,) = result.parts["stages"]
    assert (part["open"]["step"], part["open"]["stage"]) == (5, "loss")
    assert part["open"]["held_against_floor"] is False
    assert {"rng", "param", "extra"} < set(part["open"]["stages"])
