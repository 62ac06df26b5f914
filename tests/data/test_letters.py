"""Letters that the package draws: their splits, their labels, and that they are always the same."""

import torch

from uncollapse.data import describe
from uncollapse.data.letters import draw_letters, letter_shapes
from uncollapse.data.listing import Counts
from uncollapse.data.registry import list_split

INFO = describe("letters")


def test_splits_have_their_official_counts_and_letters_of_test_are_in_no_other():
    splits = {split: list_split("letters", split=split) for split in INFO.splits}
    assert {split: Counts.of(listing) for split, listing in splits.items()} == dict(INFO.official)
    letters = {split: set(listing.fine_labels.tolist()) for split, listing in splits.items()}
    assert letters["train"] == letters["val"]
    assert {number // 12 for number in letters["test"]} == {*splits["test"].labels.tolist()}
    assert not letters["train"] & letters["test"]
    drawings = [torch.from_numpy(splits[name].images).flatten(1) for name in ("train", "val")]
    assert len(torch.unique(torch.cat(drawings), dim=0)) == sum(map(len, drawings))


def test_the_same_seed_draws_the_same_ink():
    def drawn(seed):
        g = torch.Generator().manual_seed(seed)
        return draw_letters(letter_shapes(3, g), 4, g)

    ink = drawn(0)
    assert torch.equal(ink, drawn(0))
    assert not torch.equal(ink, drawn(1))
    assert (ink.shape, float(ink.min()), float(ink.max())) == ((12, 1, 20, 20), 0.0, 1.0)


def test_drawings_of_a_letter_are_nearer_than_those_of_others_on_average():
    listed = list_split("letters", split="test")
    images = torch.from_numpy(listed.images).flatten(1).double()
    letters = torch.from_numpy(listed.fine_labels)
    distance = torch.cdist(images, images)
    same = letters[:, None] == letters
    assert distance[same].mean() < distance[~same].mean()
