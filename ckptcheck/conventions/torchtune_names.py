"""What torchtune calls a parameter, and what Hugging Face calls it: the decoders of Llama, Mistral, Qwen and Gemma."""

import re
from typing import Final

_WHOLE: Final = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "norm.scale": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER: Final = re.compile(r"layers\.(?P<layer>\d+)\.(?P<rest>.+)")
_OF_LAYER: Final = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
    "sa_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
_LAST: Final = {"scale": "weight", "weight": "weight", "bias": "bias"}


def to_hugging_face(name: str) -> str:
    """The name in Hugging Face's model; the same name where none is known."""
    if name in _WHOLE:
        return _WHOLE[name]
    match = _LAYER.fullmatch(name)
    if match is None:
        return name
    module, _, last = match["rest"].rpartition(".")
    if module not in _OF_LAYER or last not in _LAST:
        return name
    return f"model.layers.{match['layer']}.{_OF_LAYER[module]}.{_LAST[last]}"
