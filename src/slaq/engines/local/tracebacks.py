"""Exceptions that come from another process, with the traceback they had there."""

from typing_extensions import override

from slaq.engines.local.wire import unpack


class RemoteError(Exception):
    """Shown as the cause of an exception that was raised in another process."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    @override
    def __str__(self) -> str:
        return f"\n\n{self.text}"


def unpack_error(payload: memoryview) -> tuple[BaseException | None, str]:
    """Return the exception, with its traceback as its cause, and that text; None for one that cannot be sent."""
    error, text = unpack(payload)
    if error is not None:
        error.__cause__ = RemoteError(text)
    return error, text
