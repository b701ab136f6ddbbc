"""Which operations of a run are not deterministic, as torch itself warns of them."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

WARNING: Final = re.compile(r"(\S+) does not have a deterministic implementation")


@contextmanager
def named_operations(teller: Any) -> Iterator[None]:
    """Have torch warn inside, and tell the operations that it named as the fact "operations".

    What else is warned of inside is shown nowhere: the run is one that is made to be asked.
    """
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            found = [match[1] for one in caught if (match := WARNING.match(str(one.message)))]
            teller.tell({"facts": {"operations": list(dict.fromkeys(found))}})
