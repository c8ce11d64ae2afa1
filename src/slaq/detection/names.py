"""Says from the name of a series whether it is a loss, and how good a choice it would be."""

import re
from enum import IntEnum

#: Characters of a name.
LONGEST_NAME = 100

_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOSS = _words("loss losses cost")
#: Losses by names of their own. The weak ones are ordinary words too, and count only where the line says of which
#: data they are, as in "train-error".
METRICS = _words(
    "logloss mlogloss crossentropy xent entropy ce bce nll nloglik nelbo mse rmse mae mape smape rmsle msle"
    " mphe perplexity ppl deviance huber hinge quantile poisson tweedie merror inertia kld kldiv"
)
WEAK = _words("l1 l2 error fair gamma objective obj learn")
TRAINING = _words("train training trn learn fit")
HELD_OUT = _words(
    "val valid validation validate validating eval evaluation evaluating test testing tst dev oob holdout heldout"
)
#: Words that change nothing about what a series is.
_NEUTRAL = _words(
    "avg average mean running total overall batch step steps epoch iter iteration current cur curr smoothed smooth"
    " ema per the set s mini binary multi multiclass categorical sparse softmax sigmoid cross log squared absolute"
    " root percentage negative likelihood regression classification final epochs pass w logits with minibatch"
)
#: Words of what is no loss: what rises, and what belongs to a loss without being one.
_REFUSED = _words(
    "acc accuracy accuracies auc auroc aucpr prauc f1 precision recall r2 score scores reward rewards"
    " return returns bleu rouge ndcg map iou best min minimum lowest max maximum prev previous last"
    " target delta change changed improvement improve improved diff difference ratio weight weights"
    " weighting scale scaler scaling coef coeff coefficient factor lambda alpha beta rate lr time"
    " elapsed sec secs seconds ms num number count window threshold tol tolerance patience fn func"
    " function type kind name id index std stddev var variance norm grad gradient stop limit budget"
    " packet packets percent reduction smoothing margin temperature every freq frequency interval port"
    " ago remaining eta memory size bytes code codes"
)


#: Words of what counts the steps of a training.
COUNTS = _words("epoch epochs iteration iterations iter iters step steps round")
#: Words of what counts how far a training is.
STEPS = _words("epoch epochs iteration iterations iter step steps batch round time s")


class Rank(IntEnum):
    """How good a choice a series is; the least is the best."""

    #: Exactly `loss`.
    LOSS = 0
    #: The loss of training, such as `train/loss`.
    TRAINING_LOSS = 1
    #: A known loss by a name of its own, such as `training's binary_logloss`.
    METRIC = 2
    #: One loss of several, such as `g_loss`.
    PART = 3
    #: A loss on data held out, such as `val_loss`.
    HELD_OUT_LOSS = 4
    HELD_OUT_METRIC = 5


def tokens(name: str) -> tuple[str, ...]:
    """Return the words in a name, in lower case: `trainLoss/mean_1` has train, loss, mean and 1."""
    return tuple(token.lower() for token in _TOKEN.findall(name[:LONGEST_NAME].replace("'s", " ")))


def is_series(name: str) -> bool:
    """Return whether a name may be that of a curve: no count of steps, and no path of a source file."""
    return ".py" not in name and len(name) <= 40 and not STEPS.issuperset(tokens(name)[-1:])


def same_name(name: str, other: str) -> bool:
    """Return whether two names have the same words in the same order, however they are spelt."""
    return name == other or (bool(tokens(name)) and tokens(name) == tokens(other))


def rank(name: str, *, held_out: bool = False, trained: bool = False) -> Rank | None:
    """Return how good a choice a series is; None for what is no loss.

    `held_out` and `trained` say of which data the line tells, where the name does not say so.
    """
    words = frozenset(token for token in tokens(name) if not token.isdecimal())
    # "l1" is a letter and a digit.
    words |= {word for word in ("l1", "l2") if re.search(rf"(?i)(?<![a-z0-9]){word}(?![a-z0-9])", name)}
    words -= {"l"}
    if words & _REFUSED:
        return None
    own = bool(words & (TRAINING | HELD_OUT))
    held_out = bool(words & HELD_OUT) or (held_out and not own)
    trained = bool(words & TRAINING) or (trained and not own)
    loss = bool(words & LOSS)
    metric = bool(words & METRICS) or {"negative", "likelihood"} <= words
    weak = bool(words & WEAK) and (held_out or trained or {"squared", "error"} <= words)
    if not (loss or metric or weak):
        return None
    if held_out:
        return Rank.HELD_OUT_LOSS if loss else Rank.HELD_OUT_METRIC
    others = words - LOSS - METRICS - WEAK - TRAINING - HELD_OUT - _NEUTRAL
    if not loss:
        return Rank.METRIC if not others else Rank.PART
    if others:
        return Rank.PART
    return Rank.LOSS if words <= {"loss"} else Rank.TRAINING_LOSS
