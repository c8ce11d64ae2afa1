"""The dialogs of `slaq top`: a confirmation, a line of text to type, a page to read."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from typing_extensions import override

from slaq.core.visible import visible


class ConfirmDialog(ModalScreen[bool]):
    """Asks for a yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(visible(self._text)))
            yield Static("[b]y[/b] yes   [b]n[/b] no", classes="keys")


class LineDialog(ModalScreen[str]):
    """Asks for a line of text; the answer is empty if the user pressed escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "Back")]

    def __init__(self, text: str, value: str) -> None:
        super().__init__()
        self._text = text
        self._value = value

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(visible(self._text)))
            yield Input(self._value, id="entry")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Page(ModalScreen[None]):
    """Shows a text until the user closes the dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,y", "dismiss(None)", "Back")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    @override
    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box page"):
            yield Static(Text(visible(self._title), style="bold"))
            yield Static(Text(visible(self._text, lines=True)))
            yield Static("[b]esc[/b] back", classes="keys")
