"""`slaq completion`: prints the script by which a shell completes slaq's verbs and options."""

import click
from click.shell_completion import get_completion_class

from slaq.cli.display.say import say

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(slaq completion bash)"      in ~/.bashrc
    zsh:   eval "$(slaq completion zsh)"       in ~/.zshrc
    fish:  slaq completion fish | source       in ~/.config/fish/config.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None, f"click does not support {shell}"
    root = ctx.find_root().command
    say(completion(root, {}, "slaq", "_SLAQ_COMPLETE").source())
