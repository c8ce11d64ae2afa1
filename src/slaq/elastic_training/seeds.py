"""Random numbers that do not depend on who computes: each micro-batch has seeds of its own."""

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch

from slaq.elastic_training.update import Work

#: What a seed is for: samples may be fetched ahead of the micro-batch before.
SAMPLES, MODEL = 0, 1


def seed_for(seed: int, work: Work, index: int, purpose: int) -> int:
    """Return the seed of one micro-batch, of 64 bits."""
    written = struct.pack("<QqqB", seed & 0xFFFFFFFFFFFFFFFF, work.update, index, purpose)
    return int.from_bytes(blake2b(written, digest_size=8).digest(), "little")


def set_seeds(seed: int) -> None:
    """Set the generators of PyTorch, NumPy and Python that most code draws from."""
    torch.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def kept_generators(device: torch.device) -> Iterator[None]:
    """Put back the state of the generators afterwards, so that the code around it sees no draw."""
    on_card = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    drawn, listed, plain = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(drawn)
        if on_card is not None:
            torch.cuda.set_rng_state(on_card, device)
        np.random.set_state(listed)
        random.setstate(plain)
