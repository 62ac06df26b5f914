"""torch told to round its float32 products, as on a GPU with TF32."""

from contextlib import contextmanager

import torch


@contextmanager
def rounded_products():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
