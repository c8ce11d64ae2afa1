"""What the loop hands to its user after each update, and what an update is made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update of the weights, as it was made."""

    #: From 1 on; goes on where an earlier run stopped.
    number: int
    #: From 1 on.
    pass_number: int
    #: The mean over the samples of this update, before the weights changed.
    loss: float
    #: How many samples the update was made from; fewer than `batch` at the end of a pass.
    samples: int
    #: How many workers computed it.
    workers: int
    #: The size of a whole batch at this update.
    batch: int
    #: By how much the scheduled learning rate was multiplied.
    factor: float
    #: How many updates on base batches this one was worth, as far as that is measured.
    gain: float
    #: The learning rate of the first group of parameters that the update was made with.
    rate: float
    #: Whether these were the last samples of a pass, and of the last pass.
    ends_pass: bool
    ends: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The samples of one update, and the micro-batches that they are cut into: the same on every worker."""

    #: From 0 on.
    update: int
    passed: int
    #: The samples lie there in the order of the pass.
    offset: int
    samples: int
    micro_batches: int
    #: How many base batches a whole batch is made of now.
    multiple: int = 1

    def bounds(self, index: int) -> tuple[int, int]:
        """Return where the samples of a micro-batch begin and end in the order of the pass."""
        cut = self.samples * index // self.micro_batches, self.samples * (index + 1) // self.micro_batches
        return self.offset + cut[0], self.offset + cut[1]

    def size(self, index: int) -> int:
        """Return how many samples a micro-batch has."""
        begin, end = self.bounds(index)
        return end - begin
