"""How two sides differ: bytes of tensors and plain values. numpy only; torch is never imported here."""
