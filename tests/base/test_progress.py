import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from support.errors import refused
from uncollapse._base import progress
from uncollapse._base.progress import ProgressLine, progress_reporter


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(option, terminal, monkeypatch):
    screen = Terminal() if terminal else io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(progress.sys, "stderr", screen)
        with progress_reporter(option, "counting sheep") as report:
            report(1, 2)
            report(2, 2)
    return screen.getvalue()


@pytest.mark.parametrize(
    ("option", "terminal", "drawn"),
    [(None, True, True), (None, False, False), (False, True, False), (True, True, True)],
)
def test_a_bar_is_drawn_on_a_terminal_unless_refused(option, terminal, drawn, monkeypatch, capsys):
    assert ("counting sheep" in shown(option, terminal, monkeypatch)) is drawn
    assert capsys.readouterr().out == ""


def test_anything_else_is_refused_by_name():
    for option in (1, "yes", 0.5):
        with refused("progress"), progress_reporter(option, "x"):
            pass


def test_an_error_ends_the_bar_and_is_not_swallowed(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", screen)
    with pytest.raises(ZeroDivisionError), progress_reporter(True, "x") as report:
        report(1 // 0, 1)
    assert "\x1b[?25h" in screen.getvalue()  # the cursor is back


def test_a_run_s_line_keeps_the_latest_of_each_value():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160)
    with ProgressLine("training", 10, console) as line:
        line.show(1, {"loss": 0.25, "test/recall@1": None, "other": 3})
        line.show(2, {"verdict": "healthy", "test/recall@1": 0.5})
        line.note("saved [a] checkpoint")
    text = screen.getvalue()
    assert "loss 0.2500  verdict healthy  R@1 on test 50.0%" in text
    assert "saved [a] checkpoint" in text
    assert "other" not in text


@pytest.mark.parametrize("width", [60, 80])
def test_a_run_s_line_fits_a_terminal_and_notes_wrap_between_words(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    values = {"loss": 0.25, "diameter": 0.123, "verdict": "dimensional-collapse"}
    note = "a long note " * 20 + "/a/path/that/stays/whole/" + "x" * 80
    with ProgressLine("a-run-with-a-name", 1000, console) as line:
        line.show(900, values | {"validation/recall@1": 0.5})
        line.note(note)
    text = screen.getvalue()
    assert "…" not in text
    words = set(text.split())
    assert {"dimensional-collapse", "validation", "50.0%", "900/1000"} <= words
    assert set(note.split()) <= words


def test_off_a_terminal_a_run_s_line_is_quiet_but_notes_stay():
    screen = io.StringIO()
    with ProgressLine("training", 10, Console(file=screen, force_terminal=False)) as line:
        line.show(1, {"loss": 0.25})
        line.note("saved")
    assert screen.getvalue().strip() == "saved"


def test_in_a_notebook_a_run_s_line_is_a_bar_of_the_browser(monkeypatch):
    shown = []
    output = SimpleNamespace(
        HTML=str, display=lambda *_, **__: SimpleNamespace(update=shown.append)
    )
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "import_module", lambda name: output)
    with ProgressLine("a <run>", 10) as line:
        line.show(3, {"loss": 0.25, "other": 3})
    assert shown[0] == "<progress value=3 max=10></progress> a &lt;run&gt; loss 0.2500"
    assert shown[-1] == ""


@pytest.mark.processes
def test_importing_it_does_not_load_the_bar():
    code = "import sys, uncollapse._base.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
