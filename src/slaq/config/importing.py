"""Finds the function that a jobs file names as a program, in a module or in a file beside it."""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from slaq.core.errors import ProgramError, UnknownNameError

REMEDY = 'give "file.py:function" or "package.module:function"'


def import_program(reference: str, folder: Path) -> Callable[..., Any]:
    """Return the function; files, and modules beside the jobs file, are looked for in its folder."""
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise ProgramError(f"program is {reference!r}", REMEDY)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _load(where, folder)
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        problem, _, remedy = str(UnknownNameError(f"function in {where}", name, known)).partition("; ")
        raise ProgramError(problem, remedy)
    if not callable(function):
        raise ProgramError(f"{name} in {where} is not a function", "name one that takes a context")
    return function  # type: ignore[no-any-return]


def with_parameters(
    function: Callable[..., Any], parameters: Mapping[str, Any], before: tuple[str, ...] = ("a context",)
) -> Callable[..., Any]:
    """Return the program with its parameters filled in; raises ProgramError if it does not take them.

    The program is called with the first of `before`, or with as many of them as it takes.
    """
    problem: TypeError | None = None
    for count in range(1, len(before) + 1):
        try:
            inspect.signature(function).bind(*[None] * count, **parameters)
        except TypeError as error:
            problem = problem or error
        except ValueError:
            break  # a function without a signature
        else:
            break
    else:
        given = ", ".join(parameters) or "no parameters"
        name = getattr(function, "__name__", "it")
        raise ProgramError(
            f"{name}() cannot be called with {before[0]} and {given} ({problem})",
            f"give the parameters that the function takes after {' and '.join(before)}",
        )
    return partial(function, **parameters) if parameters else function


def _load(where: str, folder: Path) -> ModuleType:
    try:
        # The output of a module during its import is not part of the result.
        with contextlib.redirect_stdout(sys.stderr):
            return _from_file(folder / where) if where.endswith(".py") else importlib.import_module(where)
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"{where} cannot be imported ({type(error).__name__}: {error})",
            f"correct it, or {REMEDY}",
        ) from None


def _from_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise ProgramError(f"there is no file {path}", "check the path, which is relative to this file")
    # A name that no installed module has.
    name = f"slaq_program_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    # Other processes cannot import the module by that name, so that what it defines is pickled by value.
    cloudpickle.register_pickle_by_value(module)
    return module
