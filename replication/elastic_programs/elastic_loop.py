"""Trains a small network with `slaq.elastic`: the workers follow the job's share, a checkpoint the time."""

import argparse
from pathlib import Path

import slaq
from replication.elastic_programs.images import BATCH, CountingNetwork, Diary, images, loss, optimizer_of


def main() -> None:
    """Train until so many updates are made, or somebody ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--every", type=float, required=True)
    options = parser.parse_args()
    model, diary = CountingNetwork(), Diary(options.folder / "diary")
    training = slaq.elastic(
        loss,
        model,
        optimizer_of(model),
        images(),
        batch_size=BATCH,
        passes=1_000_000,
        micro_batches=2,
        checkpoint=options.folder / "checkpoint",
        checkpoint_every=options.every,
    )
    with training:
        for update in training:
            diary.write(model, number=update.number, workers=update.workers, pids=training.processes)
            if update.number >= options.updates:
                break


if __name__ == "__main__":
    main()
