"""What a user sees when a command fails: one red line, an exit code, no traceback.

Where several things are wrong at once, each has a line of its own.
"""

import typer
from rich.console import Console

from uncollapse.cli.printing import one_line, say

USER_ERROR, BUG, INTERRUPTED = 2, 1, 130

# Typer's base of usage errors: click's own or, in newer releases, a copy of it.
_UsageError = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the app; return 0, 2 for a user's mistake, 130 for Ctrl-C, 1 for a bug of ours.

    `--debug`, anywhere in the line, lets the exception through with its traceback.
    """
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        code = typer.main.get_command(app).main(words, "uncollapse", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        code, line = _explain(error)
        if line:
            say(f"error: {line}", style="red", console=Console(stderr=True))
    except KeyboardInterrupt:
        code = INTERRUPTED
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, typer.Abort):
        return INTERRUPTED, "interrupted"
    if type(error).__name__ == "NoArgsIsHelpError":  # the help page was asked for and is shown
        return 0, ""
    if isinstance(error, _UsageError):
        return USER_ERROR, one_line(error.format_message()) + _where_to_look(error)  # type: ignore[attr-defined]
    if type(error).__module__.startswith("uncollapse."):  # our own errors are written for people
        return USER_ERROR, _our_words(error)
    if _no_memory(error):
        fewer = "try smaller batches (batch.p, batch.k, evaluate.batch), model.dim or data.size"
        return USER_ERROR, f"out of memory: {fewer} ({one_line(str(error))})"
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        return USER_ERROR, one_line(f"{named}{error.strerror or error}")
    hint = "this is a bug in uncollapse: run again with --debug and report what it prints"
    return BUG, one_line(f"{type(error).__name__}: {error} ({hint})")


def _our_words(error: Exception) -> str:
    keys = getattr(error, "errors", ())  # training's WrongKeysError: a line for each key
    if not keys:
        return one_line(str(error))
    head = str(error).splitlines()[0]
    return "\n".join([head, *(f"- {one_line(str(key))}" for key in keys)])


def _no_memory(error: Exception) -> bool:
    """Whether it is NumPy's error for that, or torch's, on the CPU or a GPU."""
    torchs = "allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and torchs)


def _where_to_look(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f" (see: {context.command_path} --help)" if context is not None else ""
