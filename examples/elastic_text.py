"""A small language model whose training takes any change of workers; it learns the manual that Python carries.

Alone it trains in this process; in a job of slaq it uses as many workers as the job holds, and its batch follows
them. Its one argument is the number of passes over the text.
"""

import sys
from pydoc_data.topics import topics

import slaq

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch, which is not installed; install it with: pip install 'slaq[torch]'")

from torch import Tensor, nn
from torch.nn import functional

#: Characters that the model looks at, and the size and number of its layers.
LENGTH, WIDTH, LAYERS = 64, 64, 2


def pieces(text: str) -> tuple[Tensor, Tensor, int]:
    """Return pieces of the text as numbers, the same one character on, and how many characters there are."""
    letters = sorted(set(text))
    number = {letter: place for place, letter in enumerate(letters)}
    line = torch.tensor([number[letter] for letter in text])
    count = (len(line) - 1) // LENGTH
    here, there = line[: count * LENGTH], line[1 : count * LENGTH + 1]
    return here.view(count, LENGTH), there.view(count, LENGTH), len(letters)


class Reader(nn.Module):
    """A transformer that says for each character which one comes next."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.says = nn.Linear(WIDTH, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores of the next letters."""
        inside = self.letter(text) + self.place.weight[: text.shape[1]]
        return self.says(self.layers(inside, mask=self.mask, is_causal=True))


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean surprise about the next letter."""
    text, following = batch
    return functional.cross_entropy(model(text).flatten(0, 1), following.flatten())


def evaluate(model: nn.Module, held_out: tuple[Tensor, Tensor]) -> float:
    """Return the loss on text that the model was not trained on."""
    model.eval()
    with torch.no_grad():
        return float(loss(model, held_out))


def main(passes: int) -> None:
    """Train it."""
    torch.manual_seed(0)
    text, following, letters = pieces("\n".join(topics.values())[:200_000])
    last = len(text) - 200
    model = Reader(letters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # Stepped for each base batch of 16, however many of them an update is made of.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=passes * -(-last // 16))
    training = slaq.elastic(
        loss,
        model,
        optimizer,
        (text[:last], following[:last]),
        batch_size=16,
        passes=passes,
        mode="scale",
        scheduler=schedule,
    )
    for update in training:
        if update.ends_pass:
            held_out = evaluate(model, (text[last:], following[last:]))
            print(
                f"pass {update.pass_number}: loss on held-out text {held_out:.3f}, last batch {update.batch}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
