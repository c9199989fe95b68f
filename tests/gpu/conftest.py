import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "support"), str(HERE.parent / "keras")]  # rows, compare, layer_oracle


@pytest.fixture(autouse=True)
def return_memory():
    """Several processes share a GPU: none keeps memory that its next test may not need."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
