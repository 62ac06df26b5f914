"""Market-1501's protocol on a matrix of distances, one query at a time."""

import numpy as np


def market_1501(distance, ids, cams, gallery_ids, gallery_cams):
    """Mean AP, CMC at 1 and at 5, and mean INP; None if no query has a match.

    Junk (-1) and the query's own person under its own camera are left out; among items as near as
    each other the wrong ones come first.
    """
    terms = []
    for row, identity, camera in zip(distance, ids, cams, strict=True):
        ignored = ((gallery_ids == identity) & (gallery_cams == camera)) | (gallery_ids == -1)
        right = gallery_ids == identity
        order = sorted(
            np.flatnonzero(~ignored), key=lambda g, r=row, s=right: (round(r[g], 11), s[g])
        )
        ranks = np.flatnonzero(right[order]) if order else []
        if len(ranks):
            precision = np.arange(1, len(ranks) + 1) / (ranks + 1)
            terms.append((precision.mean(), ranks[0] < 1, ranks[0] < 5, precision[-1]))
    return np.mean(terms, axis=0) if terms else None
