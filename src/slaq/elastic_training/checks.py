"""Refuses what cannot be trained elastically, before anything is started."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from slaq.core.errors import ElasticError


def check_course(loss: Any, model: Any, optimizer: Any, scheduler: Any) -> None:
    """Raise ElasticError unless these belong together."""
    if not callable(loss):
        raise ElasticError(
            f"the loss is of type {type(loss).__name__}", "give a function of the model and a batch"
        )
    if not isinstance(model, nn.Module):
        raise ElasticError(f"the model is of type {type(model).__name__}", "give a torch.nn.Module")
    _check_model(model)
    _check_optimizer(model, optimizer)
    _check_scheduler(optimizer, scheduler)


def device_of(model: nn.Module) -> torch.device:
    """Return where the model is; raises ElasticError where that is more than one place."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    places = {str(tensor.device): name for name, tensor in tensors}
    if len(places) > 1:
        where = ", ".join(f"{name!r} is on {place}" for place, name in places.items())
        raise ElasticError(
            f"the model is on {len(places)} devices: {where}", "move it to one with model.to(...)"
        )
    return tensors[0][1].device


def devices_of(asked: Any) -> tuple[torch.device, ...]:
    """Return the devices that a training was given: one, several, or none where the model says."""
    if asked is None:
        return ()
    named = list(asked) if isinstance(asked, list | tuple) else [asked]
    try:
        found = tuple(torch.device(one) for one in named)
    except (RuntimeError, TypeError):
        found = ()
    if not found:
        raise ElasticError(
            f"device is {asked!r}", "give one such as 'cuda', or a list of them such as ['cuda:0', 'cuda:1']"
        )
    cards = torch.cuda.device_count()
    for one in found:
        if one.type == "cuda" and (one.index or 0) >= cards:
            raise ElasticError(
                f"there is no {one} here", f"give one of the {cards} cards there are, or 'cpu'"
            )
    return found


def _check_model(model: nn.Module) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ElasticError("the model has no parameter to train", "give one with requires_grad=True")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ElasticError(
                f"the parameter {name!r} has no shape yet",
                "call the model once with a batch before slaq.elastic",
            )
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) is True and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            raise ElasticError(
                f"the gradients of {name or 'the model'!r} are sparse", "make the embedding with sparse=False"
            )


def _check_optimizer(model: nn.Module, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ElasticError(
            f"the optimizer is of type {type(optimizer).__name__}", "give a torch.optim.Optimizer"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ElasticError(
            "LBFGS computes the loss several times an update", "take an optimizer that needs one gradient"
        )
    own = {id(parameter) for parameter in model.parameters()}
    foreign = sum(id(one) not in own for group in optimizer.param_groups for one in group["params"])
    if foreign:
        raise ElasticError(
            f"the optimizer holds {foreign} parameters that are not the model's",
            "make it from model.parameters(), after the model was moved or wrapped",
        )


def _check_scheduler(optimizer: Optimizer, scheduler: Any) -> None:
    if scheduler is None:
        return
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ElasticError(
            "ReduceLROnPlateau waits for a validation loss", "call its step() yourself, where a pass ends"
        )
    if not isinstance(scheduler, LRScheduler):
        raise ElasticError(
            f"the scheduler is of type {type(scheduler).__name__}",
            "give one of torch.optim.lr_scheduler, made for this optimizer",
        )
    if scheduler.optimizer is not optimizer:
        raise ElasticError("the scheduler belongs to another optimizer", "make it for the one given here")
