"""Stop in the middle of an epoch and go on as if nothing had happened, bit for bit."""

import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, MatchedGroups


class Training:
    """A loop whose whole state fits into one checkpoint."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        labels = torch.arange(600) % 3
        inputs = torch.randn(600, 8) + nn.functional.one_hot(labels, 8)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.groups = MatchedGroups(labels, num_batches=4, batch_size=10, seed=0)
        # A generator of its own: a loader draws a number at every start, which would shift all that follow on resuming.
        data = TensorDataset(inputs, labels)
        self.loader = DataLoader(data, batch_sampler=self.groups, generator=torch.Generator())
        self.bilevel = Bilevel(self.model, num_batches=4)

    def run(self, steps: int) -> None:
        """Take some steps, over as many epochs as that needs."""
        while steps:
            for x, y in self.loader:
                with self.bilevel.shared_dropout():
                    loss = nn.functional.cross_entropy(self.model(x), y)
                self.bilevel.backward(loss)
                if self.bilevel.full:
                    self.bilevel.fill()
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    steps -= 1
                    if not steps:
                        break

    def state_dict(self) -> dict[str, object]:
        """Return everything the next step depends on; call it between two groups."""
        parts = (self.model, self.optimizer, self.groups, self.bilevel)
        return {"parts": [part.state_dict() for part in parts], "random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from there."""
        parts = (self.model, self.optimizer, self.groups, self.bilevel)
        for part, saved in zip(parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        torch.set_rng_state(state["random"])


def main() -> bool:
    """Compare an unbroken run with one that is saved after 7 steps and continued by a new object."""
    unbroken = Training()
    unbroken.run(20)

    first = Training()
    first.run(7)
    checkpoint = io.BytesIO()
    torch.save(first.state_dict(), checkpoint)
    checkpoint.seek(0)
    second = Training()
    second.load_state_dict(torch.load(checkpoint, weights_only=True))
    second.run(13)

    pairs = zip(unbroken.model.parameters(), second.model.parameters(), strict=True)
    same = all(torch.equal(ours, theirs) for ours, theirs in pairs)
    print("the resumed run ended", "exactly like" if same else "DIFFERENTLY from", "the unbroken one")
    return same


if __name__ == "__main__":
    main()
