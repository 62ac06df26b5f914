"""The page of suspects: a card for each, pictures or words, hostile text shown as text."""

import numpy as np

from uncollapse.metrics import suspect_labels
from uncollapse.report.suspects_page import make_suspects_page

HOSTILE = "<script>alert(1)</script>"


def suspects():
    rng = np.random.default_rng(0)
    labels = np.repeat(["owl", HOSTILE], 30)
    z = rng.normal(size=(60, 4)) + 9 * (np.arange(60) >= 30)[:, None]
    labels[[2, 40]] = [HOSTILE, "owl"]
    return suspect_labels(z, labels), labels


def near_of(result, k=4):
    return {row: result.neighbours[row, :k].tolist() for row in result.rows.tolist()}


def test_each_suspect_has_a_card_with_its_neighbours_and_more_are_in_the_table():
    result, labels = suspects()
    assert sorted(result.rows.tolist()) == [2, 40]
    images = {row: np.full((8, 8), row, np.uint8) for row in range(60)}
    page = make_suspects_page(result, labels, near_of(result), images=images)
    cards = page.content["cards"]
    assert [card["text"] for card in cards] == [f"row {row}" for row in result.rows]
    assert all(card["source"].startswith("data:image/png") for card in cards)
    assert page.content["figures"]["labels judged"] == 60
    text = page.render()
    assert text.count("<img ") == 2
    assert "10 × owl" in text
    assert HOSTILE not in text
    fewer = make_suspects_page(result, labels, dict(list(near_of(result).items())[:1]))
    assert fewer.content["more"] == 1
    assert len(fewer.content["table"].rows) == 2


def test_without_pictures_the_neighbours_are_named_and_marked_by_their_label():
    result, labels = suspects()
    row = int(result.rows[0])
    own = int(np.flatnonzero((labels == labels[row]) & (np.arange(60) != row))[0])
    names = [f"{HOSTILE} {n} " + "x" * 400 for n in range(60)]
    near = {row: [*near_of(result)[row], own]}
    page = make_suspects_page(result, labels, near, names=names, title=HOSTILE)
    first = page.content["cards"][0]
    assert first["text"].startswith(f"{HOSTILE} {row} x")  # its name, not its number
    assert page.content["table"].head[1] == "name"
    assert all(len(entry["text"]) <= 240 for entry in first["near"])
    assert [entry["right"] for entry in first["near"]] == [True] * 4 + [False]
    assert HOSTILE not in page.render()
    assert "&lt;script&gt;alert(1)" in page.render()


def test_many_cards_are_folded_away():
    birds = np.repeat(np.arange(4), 100)
    z = np.random.default_rng(0).normal(size=(400, 4)) + 9 * np.eye(4)[birds]
    wrong = np.arange(5, 395, 13)[:30]
    labels = np.array(["owl", "wren", "rook", "tit"])[
        np.where(np.isin(np.arange(400), wrong), (birds + 1) % 4, birds)
    ]
    result = suspect_labels(z, labels)
    assert sorted(result.rows.tolist()) == wrong.tolist()
    text = make_suspects_page(result, labels, near_of(result)).render()
    shown, _, folded = text.partition("<details><summary>18 more</summary>")
    assert shown.count('<div class="asked">') == 12
    assert folded.count('<div class="asked">') == 18
