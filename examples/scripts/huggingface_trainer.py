"""A small language model trained by the Trainer of Hugging Face Transformers, on text made here."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
# A language of 64 words in which each word is followed by one of four.
follows = torch.randint(0, 64, (64, 4))


def sentence() -> dict[str, torch.Tensor]:
    """Return one sentence of 48 words."""
    words = [int(torch.randint(0, 64, ()))]
    while len(words) < 48:
        words.append(int(follows[words[-1], torch.randint(0, 4, ())]))
    return {"input_ids": torch.tensor(words), "labels": torch.tensor(words)}


config = GPT2Config(
    vocab_size=64, n_positions=48, n_embd=96, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=260,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        seed=0,
        use_cpu=True,
    )
    Trainer(
        model=GPT2LMHeadModel(config), args=arguments, train_dataset=[sentence() for _ in range(2_000)]
    ).train()
