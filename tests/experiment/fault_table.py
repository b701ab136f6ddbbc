"""The fault table as data: what `verify` must say of each broken target, for STEPS steps resumed at RESUME_AT.

A clean target makes CLEAN_STEPS steps.

FAULTS keeps the order of the mechanisms: optimizer state, binding, hyperparameters and schedule, generators and
data, buffers, scaler, average and accumulation, precision, weights, saving, freezing, progress.
"""

from dataclasses import dataclass
from typing import Final

STEPS: Final = 13
RESUME_AT: Final = 10
CLEAN_STEPS: Final = 20

AT_LOAD: Final = ((RESUME_AT, "load"),)


@dataclass(frozen=True, slots=True)
class Fault:
    """A target with one mistake, and the verdict that it must get: exit 1 and a cause.

    `causes` are the codes of which one must be the cause; `places` the pairs (step, stage) of which one must be
    the first divergence, or where a freeze is broken the first breach; `beside` are codes that must be among the
    findings too. Of the cause's finding, message and evidence together must name all of `names` (parameters,
    buffers, state keys, generators), contain the words `says`, and hold the numbers `numbers`, to a relative 1e-6.
    """

    mistake: str
    target: str
    causes: tuple[str, ...]
    places: tuple[tuple[int, str], ...] = AT_LOAD
    names: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    says: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """A target that gets no verdict on its resume: the exit code and the words of its one line."""

    mistake: str
    target: str
    exit_code: int
    says: tuple[str, ...]
    cause: str | None = None


CLEAN: Final = (
    "fixtures/char_gpt.py",
    "fixtures/digits_cnn.py",
    "fixtures/digits_cnn.py:build_augmented",
    "fixtures/accumulation.py",
    "fixtures/frozen_backbone.py",
    "fixtures/tied_embeddings.py",
    "fixtures/ema.py",
    "fixtures/two_models.py",
    "fixtures/hand_written.py",
    "fixtures/store_mlp.py",
    "fixtures/warmup_linear.py",
)

COSINE_LR: Final = (0.0025606601717798215, 0.003)
"""The rate that char_gpt's schedule has reached after step 10, and the configured one."""

COSINE_LR_AT_12: Final = (0.002474172072495276, 0.0025567133414135875)
"""The rates of step 12, the first update that a schedule ten steps behind changes: left and right."""

BACKBONE: Final = ("backbone.0.weight", "backbone.0.bias", "backbone.2.weight", "backbone.2.bias")
HEAD: Final = ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")

FAULTS: Final = (
    Fault(
        "optimizer state never loaded",
        "fixtures/char_gpt_faults.py:build_optimizer_not_loaded",
        causes=("CK201",),
    ),
    Fault(
        "state of one parameter missing in the file",
        "fixtures/char_gpt_faults.py:build_parameter_state_missing",
        causes=("CK202",),
        names=("tokens.weight",),
    ),
    Fault(
        "exp_avg_sq of one parameter missing (the resumed run raises)",
        "fixtures/char_gpt_faults.py:build_second_moment_missing",
        causes=("CK203",),
        names=("tokens.weight", "exp_avg_sq"),
    ),
    Fault(
        "two same-shape parameters swapped between decay groups at load",
        "fixtures/char_gpt_faults.py:build_decay_groups_swapped",
        causes=("CK301", "CK302"),
        names=("positions.weight", "blocks.0.out.weight"),
    ),
    Fault(
        "parameter order reversed",
        "fixtures/warmup_linear_faults.py:build_parameters_reversed",
        causes=("CK302",),
        names=("layers.0.weight", "layers.1.weight", "layers.2.weight", "layers.3.weight"),
        says=("permutation",),
    ),
    Fault(
        "frozen parameters in the optimizer on one side only, same count",
        "fixtures/frozen_backbone_faults.py:build_frozen_in_the_optimizer",
        causes=("CK302", "CK405"),
        names=BACKBONE,
    ),
    Fault(
        "another part frozen after the load, same count",
        "fixtures/frozen_backbone_faults.py:build_other_part_frozen",
        causes=("CK302", "CK405"),
        names=BACKBONE + HEAD,
    ),
    Fault(
        "optimizer holds tensors that the model replaced",
        "fixtures/char_gpt_faults.py:build_head_replaced",
        causes=("CK307",),
        names=("head.weight", "head.bias"),
    ),
    Fault(
        "learning rate set anew after load",
        "fixtures/char_gpt_faults.py:build_learning_rate_set_anew",
        causes=("CK306",),
        names=("lr",),
        numbers=COSINE_LR,
    ),
    Fault(
        "schedule not restored",
        "fixtures/char_gpt_faults.py:build_schedule_not_loaded",
        causes=("CK602",),
        places=((RESUME_AT, "load"), (RESUME_AT + 1, "hyperparameters")),
        numbers=(*COSINE_LR_AT_12, -10),  # both rates, and the offset in steps
    ),
    Fault(
        "schedule built after the load (LinearLR)",
        "fixtures/warmup_linear_faults.py:build_schedule_after_load",
        causes=("CK602",),
        numbers=(0.007, 0.0007),
    ),
    Fault(
        "RNG not restored, dropout",
        "fixtures/char_gpt_faults.py:build_rng_not_loaded",
        causes=("CK603",),
        names=("torch",),
    ),
    Fault(
        "RNG of Python not restored, augmentation",
        "fixtures/digits_cnn_faults.py:build_python_generator_lost",
        causes=("CK603",),
        names=("python",),
    ),
    Fault(
        "data position lost",
        "fixtures/digits_cnn_faults.py:build_data_position_lost",
        causes=("CK604",),
        says=("step 1",),  # the batch of step 1 comes where that of step 11 should
    ),
    Fault(
        "data position lost, and the target says nothing of its data",
        "fixtures/digits_cnn_faults.py:build_data_position_lost_unseen",
        causes=("CK604",),
        places=((RESUME_AT + 1, "inputs"),),
        says=("step 1",),
    ),
    Fault(
        "BatchNorm statistics not saved",
        "fixtures/digits_cnn_faults.py:build_statistics_not_saved",
        causes=("CK605",),
        names=(
            "1.running_mean", "1.running_var", "1.num_batches_tracked",
            "4.running_mean", "4.running_var", "4.num_batches_tracked",
        ),
    ),
    Fault(
        "scaler state lost",
        "fixtures/accumulation_faults.py:build_scaler_not_loaded",
        causes=("CK608",),
        numbers=(2.0**21, 2.0**22, 2, 0),  # the scale and the count towards growth, left and right
    ),
    Fault(
        "EMA not restored",
        "fixtures/ema_faults.py:build_ema_not_loaded",
        causes=("CK208",),
    ),
    Fault(
        "accumulated gradients lost (resume mid-window)",
        "fixtures/accumulation_faults.py:build_gradients_lost",
        causes=("CK613",),
        names=("0.weight", "0.bias", "2.weight", "2.bias"),
    ),
    Fault(
        "moments through bf16",
        "fixtures/char_gpt_faults.py:build_moments_as_bf16",
        causes=("CK504",),
        names=("exp_avg", "exp_avg_sq"),
        says=("bfloat16",),
    ),
    Fault(
        "step counter set to 0",
        "fixtures/char_gpt_faults.py:build_step_counter_reset",
        causes=("CK505",),
        names=("step",),
        numbers=(10, 0),
    ),
    Fault(
        "weights: one module not loaded (strict=False)",
        "fixtures/char_gpt_faults.py:build_head_prefix_wrong",
        causes=("CK309",),
        names=("head.weight", "head.bias"),
    ),
    Fault(
        "tied weights come back untied",
        "fixtures/tied_embeddings_faults.py:build_loaded_untied",
        causes=("CK311",),
        names=("tokens.weight", "head.weight"),
    ),
    Fault(
        "saving draws random numbers",
        "fixtures/char_gpt_faults.py:build_save_draws_a_sample",
        causes=("CK609",),
        places=((RESUME_AT, "rng"),),
        names=("torch",),
    ),
    Fault(
        "freeze hold broken by zero gradients with momentum",
        "fixtures/frozen_backbone_faults.py:build_zero_gradients_with_momentum",
        causes=("CK401", "CK402"),
        places=((1, "param"), (1, "state")),
        names=BACKBONE,
        beside=("CK403",),
    ),
    Fault(
        "freeze hold broken by decay",
        "fixtures/frozen_backbone_faults.py:build_zero_gradients_with_decay",
        causes=("CK401",),
        places=((1, "param"),),
        names=BACKBONE,
        beside=("CK403",),
    ),
    Fault(
        "freeze hold broken by a stale gradient",
        "fixtures/frozen_backbone_faults.py:build_stale_gradient",
        causes=("CK401", "CK402"),
        places=((1, "param"), (1, "state")),
        names=BACKBONE,
        beside=("CK403",),
    ),
    Fault(
        "progress restored off by one, so that step k's work is done again",
        "fixtures/tied_embeddings_faults.py:build_progress_off_by_one",
        causes=("CK612", "CK604"),
        places=((RESUME_AT, "load"), (RESUME_AT + 1, "inputs")),
        says=("step 10",),
    ),
    Fault(
        "async save that aliases live tensors (bytes of a later step)",
        "fixtures/char_gpt_faults.py:build_async_save_aliases",
        causes=("CK601",),
        says=("step 11",),
    ),
)  # fmt: skip

TROUBLES: Final = (
    Trouble("seeded by the clock", "fixtures/broken/unseeded.py", 3, says=("seed",), cause="CK611"),
    Trouble("raises in step 7", "fixtures/broken/raises.py", 2, says=("step 7", "the data of step 7 is broken")),
    Trouble("the factory raises", "fixtures/broken/raises.py:build_in_factory", 2, says=("no training data here",)),
    Trouble("hangs in step 3 (needs --timeout)", "fixtures/broken/hangs.py", 2, says=("step 3",)),
    Trouble("killed in step 5", "fixtures/broken/killed.py", 2, says=("step 5", "SIGKILL")),
    Trouble("save writes nothing", "fixtures/broken/saves_nothing.py", 2, says=("save",)),
    Trouble("factory returns None", "fixtures/broken/not_a_run.py", 2, says=("factory", "NoneType")),
    Trouble("factory returns a model", "fixtures/broken/not_a_run.py:build_model", 2, says=("Linear",)),
    Trouble("factory returns the class Run", "fixtures/broken/not_a_run.py:build_class", 2, says=("build_class",)),
    Trouble("factory takes no context", "fixtures/broken/not_a_run.py:build_without_context", 2, says=("argument",)),
    Trouble("factory is a constant", "fixtures/broken/not_a_run.py:build_from_a_constant", 2, says=("int",)),
    Trouble("factory missing", "fixtures/broken/not_a_run.py:build_elsewhere", 2, says=("build_elsewhere",)),
    Trouble("target file missing", "fixtures/broken/missing.py", 2, says=("missing.py",)),
)
