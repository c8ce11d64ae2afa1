"""Names that choose classes: those slaq brings, and those installed packages add through entry points."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, ParamSpec, TypeVar

from typing_extensions import get_protocol_members

from slaq.core.errors import PluginError, SlaqError, UnknownNameError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry(Generic[P, T]):
    """Makes policies, or engines, by name.

    An entry point of a package refers to a class or function that is called as slaq's own are. It is loaded only
    when its name is used, so that a broken package is no obstacle to the other names. slaq's own names win.
    """

    #: What a name stands for, in messages.
    kind: str
    #: The group of the entry points.
    group: str
    #: The protocol that all of them fulfil.
    protocol: Any
    #: Those that slaq brings.
    own: Mapping[str, Callable[P, T]]

    def names(self) -> tuple[str, ...]:
        """Return every known name, slaq's own first."""
        return tuple(dict.fromkeys((*self.own, *sorted(point.name for point in self._added()))))

    def make(self, name: str, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return a new one of that name; raises UnknownNameError, or PluginError for a package that is broken."""
        if name in self.own:
            return self.own[name](*args, **kwargs)
        points = [point for point in self._added() if point.name == name]
        if not points:
            raise UnknownNameError(self.kind, name, self.names())
        packages = sorted({_package(point) for point in points})
        if len(packages) > 1:
            raise PluginError(self.kind, name, " and ".join(packages), "several packages add this name")
        try:
            made: T = points[0].load()(*args, **kwargs)
        except SlaqError:
            raise
        except Exception as error:
            raise PluginError(self.kind, name, packages[0], f"{type(error).__name__}: {error}") from error
        missing = sorted(part for part in get_protocol_members(self.protocol) if not hasattr(made, part))
        if missing:
            protocol = f"{self.protocol.__module__}.{self.protocol.__name__}"
            found = f"it has no {missing[0]!r}, as a subclass of {protocol} has"
            raise PluginError(self.kind, name, packages[0], found)
        return made

    def _added(self) -> Sequence[EntryPoint]:
        return tuple(entry_points(group=self.group))


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"
