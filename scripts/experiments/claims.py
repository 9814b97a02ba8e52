"""What is claimed of a study's arms, and what the runs that there are say about it. Runs with the same seed are compared: they have the same
initial weights and, but for isolated replicas, the same batches. `losses`: {arm's name: {seed: validation loss}}."""
import dataclasses

SEEDS_WANTED = 3
TOKENS_APART = 0.01  # runs that differ by more are not compared


@dataclasses.dataclass(frozen=True)
class Verdict:
    words: str
    values: tuple  # one a seed
    holds: bool | None  # None: nothing has been run
    uneven: tuple = ()  # by how much more tokens were seen, one a seed, where that is more than TOKENS_APART

    @property
    def standing(self):
        """Of fewer seeds than wanted it is said how many."""
        if self.holds is None:
            return "not run"
        if self.uneven:
            return f"not shown, at {', '.join(f'{part:+.0%}' for part in self.uneven)} tokens"
        standing = "holds" if self.holds else "does not hold"
        return standing if len(self.values) >= SEEDS_WANTED else f"{standing} so far ({len(self.values)} of {SEEDS_WANTED} seeds)"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def common(losses, *arms):
    """[(loss of each arm)] for each seed that all have."""
    found = [losses.get(arm.name, {}) for arm in arms]
    return [tuple(one[seed] for one in found) for seed in sorted(set.intersection(*map(set, found)))]


def uneven(tokens, arm, base):
    """`tokens`: as losses. What `arm` saw more of, one a seed; empty: as many."""
    parts = tuple(a / b - 1 for a, b in common(tokens or {}, arm, base))
    return parts if any(abs(part) > TOKENS_APART for part in parts) else ()


@dataclasses.dataclass(frozen=True)
class Within:
    """The loss of `arm` is at most this part above that of `base`, in the mean."""
    arm: object
    base: object
    part: float

    def judge(self, losses, tokens=None):
        values = tuple(a / b - 1 for a, b in common(losses, self.arm, self.base))
        return Verdict(f"{self.arm.name} within {self.part:.0%} of {self.base.name}", values, mean(values) <= self.part if values else None,
                       uneven(tokens, self.arm, self.base))


@dataclasses.dataclass(frozen=True)
class Better:
    """The loss of `arm` is below that of `other`, with every seed."""
    arm: object
    other: object

    def judge(self, losses, tokens=None):
        values = tuple(a / b - 1 for a, b in common(losses, self.arm, self.other))
        return Verdict(f"{self.arm.name} ahead of {self.other.name}", values, max(values) < 0 if values else None)


@dataclasses.dataclass(frozen=True)
class WithinSpread:
    """The mean losses differ by no more than losses of `base` do by seed; so it needs two seeds."""
    arm: object
    base: object

    def judge(self, losses, tokens=None):
        pairs = common(losses, self.arm, self.base)
        values = tuple(a / b - 1 for a, b in pairs)
        holds = None
        if len(pairs) > 1:
            bases = [b for _, b in pairs]
            holds = abs(mean(a for a, _ in pairs) - mean(bases)) <= max(bases) - min(bases)
        return Verdict(f"{self.arm.name} within the spread by seed of {self.base.name}", values, holds)


@dataclasses.dataclass(frozen=True)
class Recovers:
    """`arm` makes good this part of what `wrong` lacks to `right`, in the mean."""
    arm: object
    wrong: object
    right: object
    part: float

    def judge(self, losses, tokens=None):
        values = tuple((wrong - a) / (wrong - right) for a, wrong, right in common(losses, self.arm, self.wrong, self.right) if wrong > right)
        return Verdict(f"{self.arm.name} recovers {self.part:.0%} of what {self.wrong.name} lacks to {self.right.name}", values,
                       mean(values) >= self.part if values else None)


@dataclasses.dataclass(frozen=True)
class Target:
    """Figures measured apart from runs; each is to be at least `least` or at most `most`."""
    words: str
    values: tuple
    least: float | None = None
    most: float | None = None
    form: str = "{:.1%}"

    @property
    def holds(self):
        return all((self.least is None or value >= self.least) and (self.most is None or value <= self.most) for value in self.values)

    @property
    def line(self):
        """Of a page's list."""
        values = ", ".join(self.form.format(value) for value in self.values)
        return f"* {self.words}: **{'holds' if self.holds else 'does not hold'}** ({values})\n"
