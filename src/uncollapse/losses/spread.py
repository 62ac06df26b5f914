"""Supervised contrast with class-conditional InfoNCE, "spread": Chen et al. 2022."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse.losses.base import Batch, Choice, Elements, LossInfo, Named, Number, TupleLoss
from uncollapse.losses.on_graph import among, cosines, log_sum

STAND_INS = ("nearest", "self")


class SpreadLoss(TupleLoss):
    """(1 - α) attract + α spread, mean over the anchors a with a positive.

    With cosines s over T `temperature` in the exponents, positives P and negatives N of a:

    - attract, mean over p in P: -log(exp(s_ap) / (exp(s_ap) + Σ_{n in N} exp(s_an)));
    - spread, class-conditional InfoNCE: -log(exp(s_av) / Σ_{p in P} exp(s_ap)), for v a view of a
      (mean, if there are several): the sample is told from the others of its class, which pushes
      these apart.

    Chen et al.'s loss as in their code, where α is 1/2 and T 0.5. Embeddings are always
    normalised. Without a miner P is the rest of the class, N all other classes; with one, or with
    tuples, those they name.

    **Views.** The paper's v is another augmentation of the same image. Here two rows with one of
    `sample_ids` are views of each other: `loss(torch.cat([z1, z2]), labels.repeat(2),
    sample_ids=ids.repeat(2))`. For rows without one, `stand_in` says what takes its place, and
    that is no longer the paper's loss:

    - `"nearest"`: the nearest positive, as in EPS. Pulls a sample to its likeliest sibling and
      pushes the rest of the class away.
    - `"self"`: the row itself, in P as well. Pushes every positive away, alike or not; the paper
      proves that this spreads a class and shows that it does not sort it.

    References have no ids: the stand-in is taken beside them.

    Needs a class with two samples; better more, for there is nothing to spread in a pair.

    Siblings: `NTXentLoss` is `alpha=0` (mean over pairs there, over anchors here); `SupConLoss`
    with `Miner("easy", "all")` keeps modes by pulling less, not by pushing.

    Collapse: when all embeddings coincide the loss is (1 - α) log(1 + |N|) + α log |P|
    (log(|P| + 1) with `"self"`), and the gradient 0.

    Args:
        temperature: T.
        alpha: α, the weight of the spread; 0 is none.
        stand_in: what is a view where there is none, see above.
        miner: chooses the pairs.

    >>> SpreadLoss(alpha=1.0)(torch.ones(6, 2), [0, 0, 0, 1, 1, 1])  # log 2
    tensor(0.6931)
    >>> z, ids = torch.eye(4)[[0, 1, 2, 3, 0, 1, 2, 3]], torch.arange(4).repeat(2)
    >>> loss = SpreadLoss(alpha=1.0, temperature=1.0)  # each of the class's two is its own view's
    >>> round(loss(z, ids // 2, sample_ids=ids).item(), 4)  # log(1 + 2/e)
    0.5514
    """

    info = LossInfo("spread", {"spread": {}, "spread, from itself": {"stand_in": "self"}})
    resting = (
        "nan if stand_in == 'self' else (1 - alpha) * ln(1 + negatives) + alpha * ln(positives)"
    )
    stand_in = Choice(*STAND_INS)
    temperature = Number(1e-6)
    alpha = Number(0.0, 1.0)

    def __init__(
        self,
        *,
        temperature: float = 0.5,
        alpha: float = 0.5,
        stand_in: str = "nearest",
        miner: nn.Module | None = None,
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        self.temperature, self.alpha, self.stand_in = temperature, alpha, stand_in

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per anchor with a positive; `pull` is what its positives cost beside others."""
        anchor, other, positive, negative, real = self.pair_sets(batch, tuples)
        cosine = cosines(batch)
        logit = cosine / self.temperature
        far = log_sum(logit.masked_fill(~negative, -torch.inf))
        each = among(functional.softplus(far[anchor] - logit[anchor, other]), real)
        total = far.new_zeros(batch.count).index_add(0, anchor, each)
        pulled = total / positive.sum(1).clamp(min=1)
        apart = self._spread(logit, positive, _views(batch, positive))
        loss = ((1.0 - self.alpha) * pulled + self.alpha * apart).to(batch.rows.dtype)
        row = torch.arange(batch.count, device=loss.device)
        return Elements(loss, pulled.detach(), row).take(positive.any(1))

    def _spread(self, logit: Tensor, positive: Tensor, view: Tensor) -> Tensor:
        """Class-conditional InfoNCE of each row; 0 for those without a positive."""
        whole = logit.masked_fill(~positive, -torch.inf)
        similar = (logit * view).sum(1) / view.sum(1).clamp(min=1)
        alone = ~view.any(1)
        if self.stand_in == "self":
            own = 1.0 / self.temperature
            whole = torch.cat([whole, torch.where(alone, own, -torch.inf)[:, None]], dim=1)
            similar = torch.where(alone, own, similar)
        else:
            nearest = whole.detach().argmax(1, keepdim=True)
            similar = torch.where(alone, logit.gather(1, nearest)[:, 0], similar)
        return torch.where(positive.any(1), log_sum(whole) - similar, 0.0)


def _views(batch: Batch, positive: Tensor) -> Tensor:
    """Positives that are views of their anchor."""
    ids = batch.sample_ids
    if ids is None or batch.offset:
        return torch.zeros_like(positive)
    return positive & (ids[:, None] == ids)
