"""The page of suspects: a card for each, pictures or words, hostile text shown as text."""

from __future__ import annotations

import numpy as np

from uncollapse.metrics import suspect_labels
from uncollapse.report.suspects_page import make_suspects_page

HOSTILE = "<script>alert(1)</script>"


def found():
    rng = np.random.default_rng(0)
    labels = np.repeat(["owl", HOSTILE], 30)
    z = rng.normal(size=(60, 4)) + 9 * (np.arange(60) >= 30)[:, None]
    labels = labels.astype(object)
    labels[[2, 40]] = [HOSTILE, "owl"]
    labels = labels.astype(str)
    return suspect_labels(z, labels), labels


def near_of(result, k=4):
    return {row: result.neighbours[row, :k].tolist() for row in result.rows.tolist()}


def test_each_suspect_has_a_card_with_its_neighbours():
    result, labels = found()
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


def test_without_pictures_the_neighbours_are_named():
    result, labels = found()
    names = [f"text {row} " + "x" * 400 for row in range(60)]
    page = make_suspects_page(result, labels, near_of(result), names=names)
    first = page.content["cards"][0]
    assert len(first["near"]) == 4
    assert all(len(one["text"]) <= 240 for one in first["near"])
    assert {one["right"] for one in first["near"]} == {True}


def test_labels_and_names_are_text_whatever_they_say():
    result, labels = found()
    page = make_suspects_page(result, labels, near_of(result), names=[HOSTILE] * 60, title=HOSTILE)
    assert HOSTILE not in page.render()
    assert "&lt;script&gt;alert(1)" in page.render()


def test_a_neighbour_with_the_label_as_given_is_marked_so():
    result, labels = found()
    row = int(result.rows[0])
    own = int(np.flatnonzero((labels == labels[row]) & (np.arange(60) != row))[0])
    card = make_suspects_page(result, labels, {row: [own]}).content["cards"][0]
    assert card["near"][0]["right"] is False


def test_more_suspects_than_cards_are_in_the_table():
    result, labels = found()
    page = make_suspects_page(result, labels, dict(list(near_of(result).items())[:1]))
    assert page.content["more"] == 1
    assert len(page.content["table"].rows) == 2
