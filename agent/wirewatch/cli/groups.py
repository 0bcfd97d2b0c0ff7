"""Groups of commands with complete help, examples, and the nearest names."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import IO, Any, NamedTuple

import click
from click.exceptions import NoArgsIsHelpError, NoSuchCommand
from click.shell_completion import CompletionItem


class Listed(NamedTuple):
    """A command in the table of a group: `module:attribute`, and its sentence in the list of commands.

    `hidden`: it works, but no list shows it.
    """

    where: str
    sentence: str
    hidden: bool = False


class CommandGroup(click.Group):
    """A group whose list of commands is never cut off. Alone it answers as `alone` does, else with its help.

    A hidden command `alone` is the group itself: it takes words that name no command, and shows the group's
    help.
    """

    def __init__(self, *, alone: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alone = alone

    def itself(self) -> click.Command | None:
        """Return the command that stands for the group where no other is named, if no list has it."""
        command = self.commands.get(self._alone)
        return command if command is not None and command.hidden else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; without a command answer as `alone`, or print the help and exit with 0."""
        first = args[0] if args else ""
        named = first in self.commands or first in ctx.help_option_names or ctx.resilient_parsing
        if self._alone and not named and (not first or first.startswith("-") or self.itself()):
            args = [self._alone, *args]
        try:
            return super().parse_args(ctx, args)
        except NoArgsIsHelpError:
            click.echo(ctx.get_help())
            ctx.exit(0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command; else raise an error with the nearest names, or where to read all."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            near = NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx)
            if near.possibilities:
                raise near from error
            listed = f"{error.message} `{ctx.command_path} --help` lists them."
            raise NoSuchCommand(error.command_name, listed, ctx=ctx) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands that are not hidden."""
        return [name for name in super().list_commands(ctx) if not self.commands[name].hidden]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of a group, or of the command that stands for it, with the list of commands."""
        command = self.itself()
        if command is None:
            super().format_help(ctx, formatter)
            return
        own = click.Context(command, parent=ctx.parent, info_name=ctx.info_name)
        command.format_usage(own, formatter)
        command.format_help_text(own, formatter)
        command.format_options(own, formatter)
        self.format_commands(ctx, formatter)
        command.format_epilog(own, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, each with its whole sentence."""
        rows = [(name, self.sentence(ctx, name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def sentence(self, ctx: click.Context, name: str) -> str:
        """Return the sentence that describes a command."""
        command = self.get_command(ctx, name)
        return "" if command is None else whole_sentence(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands that begin with the text, with their sentences; no command is imported for that."""
        found = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.sentence(ctx, name)) for name in found]
        itself = self.itself()
        for one in itself.params if itself else ():
            if isinstance(one, click.Argument):
                items += one.shell_complete(ctx, incomplete)
        return items + click.Command.shell_complete(itself or self, ctx, incomplete)


class LazyGroup(CommandGroup):
    """A group of commands that are imported when called.

    `more` finds commands of other packages. It is called once, for the first name that `table` does not have.
    """

    def __init__(
        self, *, table: Mapping[str, Listed], more: Callable[[], Mapping[str, Listed]] = dict, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._table, self._more = table, cache(more)

    def offer(self, table: Mapping[str, Listed]) -> None:
        """Add the commands of another package, which no entry point names."""
        self._table = {**self._table, **table}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        every = {**self._more(), **self._table}
        return sorted(name for name, one in every.items() if not one.hidden)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        listed = self._listed(cmd_name)
        if listed is None:
            return None
        module, _, attribute = listed.where.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def sentence(self, ctx: click.Context, name: str) -> str:  # noqa: ARG002
        listed = self._listed(name)
        return "" if listed is None else listed.sentence

    def _listed(self, name: str) -> Listed | None:
        return self._table.get(name) or self._more().get(name)


class RenamingCommand(click.Command):
    """A command that also reads its options' former names, with a line that says so."""

    def __init__(self, *, renamed: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._renamed = renamed

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, with the present names."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._today, args[:end]), *args[end:]])

    def _today(self, word: str) -> str:
        name, joined, value = word.partition("=")
        now = self._renamed.get(name)
        if now is None:
            return word
        click.echo(f"wirewatch: {name} is called {now} now, and is read as that", err=True)
        return f"{now}{joined}{value}"


def whole_sentence(command: click.Command) -> str:
    """The first sentence of a command's help, however long."""
    return command.get_short_help_str(limit=1 << 16)


def is_terminal(stream: "IO[str] | None") -> bool:
    """Return whether a person looks at an output; None is an output that was closed before the start."""
    return stream is not None and stream.isatty()


def examples(*lines: str) -> str:
    """The epilog of a command: lines to type as they stand."""
    return "\n".join(("\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)))
