from pathlib import Path


def test_the_first_example_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    names = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    assert tuple(names["embeddings"].shape) == (32, 32)
