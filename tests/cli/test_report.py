"""`uncollapse report`: the page of a run, of several or of a file, where it is asked for."""

import numpy as np
import pytest

from support.runs import copy_of


@pytest.mark.slow
def test_one_run_gets_its_page_inside_and_several_where_asked(plain, folder, cli):
    run = copy_of("plain", folder) / "run"
    (run / "report.html").unlink()
    assert f"wrote {run / 'report.html'}" in cli("report", run).out
    assert "Run run" in (run / "report.html").read_text(encoding="utf-8")
    cli("report", plain, run, "--out", "new/both.html")
    assert "2 runs" in (folder / "new/both.html").read_text(encoding="utf-8")
    assert "no config.toml in it" in cli("report", folder, code=2).err


@pytest.mark.slow
def test_a_file_gets_the_page_of_its_diagnosis(folder, cli):
    z = np.random.default_rng(0).normal(size=(60, 4))
    np.savez("z.npz", embeddings=z, kind=np.arange(60) % 5)
    cli("diagnose", "z.npz", "--labels", "kind", "--html", "page.html")
    assert "wrote report.html" in cli("report", "z.npz", "--labels", "kind").out
    assert (folder / "report.html").read_text() == (folder / "page.html").read_text()
    for words in (["z.npz", "--trust"], ["z.npz", "--measure"], [folder, "--labels", "kind"]):
        assert f"{words[1]} is only for " in cli("report", *words, code=2).err
