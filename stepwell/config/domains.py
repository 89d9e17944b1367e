"""Where the policy acts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from stepwell.config.settings import CUSTOM, Count, CustomConfig, Difficulties, Settings, Share, kind_of

__all__ = [
    "AxesConfig",
    "BasketConfig",
    "CaveConfig",
    "DomainConfig",
    "InterruptionsConfig",
    "MazeConfig",
    "QuestionsConfig",
    "ReasoningConfig",
    "ShopConfig",
    "WebShopConfig",
]


class InterruptionsConfig(Settings):
    """What happens in the middle of an episode; nothing where no kind is named."""

    kinds: tuple[str, ...] = ()
    """Of `tool_error`, `stale_page` (any domain); in the generated shop also `price_rise`, `price_drop`, `stock_out`, `option_out`,
    `decoy_out`, `restock`, `delisted`, `empty_results`, `budget_revised`, `option_revised`."""
    share: Share = 1.0
    """Of the tasks, or members of a group, to which something happens."""
    number: Count = 1
    """Events of an episode, at most."""
    at: tuple[int | float | str, ...] = (0.2, 0.4, 0.6, 0.8)
    """When, one drawn for each event: fractions of the expert's path, numbers of steps, or what is waited for: the first use of a tool; in
    the shop also `results_shown`, `target_opened`, `option_chosen`, `ready`."""
    told: Literal["explicit", "implicit", "mixed"] = "mixed"
    """Whether it is announced in the observation."""
    lasts: Literal["transient", "permanent", "mixed"] = "mixed"
    """Whether it passes. Failing tools, empty results and stale pages always do; revisions and restocks never."""
    steps: Count = 2
    """How long what passes lasts."""
    shared: Literal["task", "member"] = "task"
    """Whether all members of a group meet the same, or each its own."""
    splits: tuple[str, ...] = ("train", "validation", "test")
    """Tasks of these are interrupted, others are not: `[train]` trains with interruptions and measures without."""
    solvable: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What must stay within reach, or else the event does not happen."""
    seed: int = 0
    """Of what happens; the tasks do not depend on it."""


class AxesConfig(Settings):
    """What makes a shop's tasks hard, set one by one; what is not set is drawn by difficulty."""

    attributes: Annotated[int, Field(ge=1, le=3)] | None = None
    """Attributes asked for."""
    options: Annotated[int, Field(ge=0, le=2)] | None = None
    """Options asked for."""
    distractors: Annotated[int, Field(ge=0, le=3)] | None = None
    """Products to open and leave: they look right in the results and lack something. Where the catalogue has fewer, the nearest number."""
    wording: Literal["verbatim", "paraphrased", "synonyms"] | None = None
    """`verbatim`: in order, with labels; `paraphrased`: in free order; `synonyms`: with other words for attributes as well."""
    option_names: bool | None = None
    """Whether options are asked for by name and value, or by value alone."""
    budget: Literal["none", "stated", "missing"] | None = None
    """`missing`: there is a limit, and the instruction keeps it to itself; the cheapest product that fits is under it."""
    hidden: bool | None = None
    """Whether one attribute stands on the product's page only."""
    steps: tuple[Annotated[int, Field(ge=3, le=10)], Annotated[int, Field(ge=3, le=10)]] | None = None
    """Fewest and most actions of the scripted expert."""


class ShopConfig(Settings):
    """A generated shop."""

    kind: Literal["shop"] = "shop"
    products: Annotated[int, Field(ge=50, le=5_000_000)] = 1000
    """Size of the catalogue."""
    seed: int = 0
    """Of catalogue and tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""
    expert_haste: dict[str, Share] = Field(default_factory=dict)
    """Option's name -> probability with which the scripted expert buys before it has chosen one: fallible demonstrations."""
    axes: AxesConfig = AxesConfig()
    interruptions: InterruptionsConfig = InterruptionsConfig()


class BasketConfig(Settings):
    """Shopping lists in a generated shop: several products under one budget, paid 1 or 0 at the end."""

    kind: Literal["basket"] = "basket"
    products: Annotated[int, Field(ge=50, le=5_000_000)] = 1000
    """Size of the catalogue."""
    seed: int = 0
    """Of catalogue and tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""
    items: tuple[Annotated[int, Field(ge=1, le=6)], Annotated[int, Field(ge=1, le=6)]] | None = None
    """Fewest and most products of a list, between which difficulty decides; None is 2 to 6: about 7 to 30 turns."""
    fee: Annotated[int, Field(ge=0, le=50, multiple_of=5)] = 5
    """Dollars that a returned order costs."""
    expert_haste: dict[str, Share] = Field(default_factory=dict)
    """Option's name -> probability with which the scripted expert orders without having chosen it."""
    expert_forgets: Share = 0.0
    """Probability, before each item but the first, with which the scripted expert takes the list for done and checks out."""
    axes: AxesConfig = AxesConfig()
    interruptions: InterruptionsConfig = InterruptionsConfig()


class WebShopConfig(Settings):
    """The real WebShop products."""

    kind: Literal["webshop"] = "webshop"
    data: str
    """Folder with the products' files."""
    variant: Literal["compat", "clean"] = "clean"
    """`compat` is the original to the letter; `clean` is without its accidents, split by product."""
    mode: Literal["text", "text_rich"] = "text"
    """Form of the pages (compat)."""
    show_attrs: bool = False
    """An extra page with the product's attributes (compat)."""
    seed: int = 0
    """Of prices, price limits and the clean split."""
    catalogue: Literal["auto", "small", "full"] = "auto"
    """Which files to load where the folder holds both."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """Generated instructions, or those written by people (compat)."""
    nouns: str = "en_core_web_sm-3.6.0"
    """Model behind the lists of title nouns."""
    goals_per_product: Count = 4
    """Cap on goals of one product (clean)."""
    interruptions: InterruptionsConfig = InterruptionsConfig()


class _LayoutSettings(Settings):
    seed: int = 0
    """Of all tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""
    interruptions: InterruptionsConfig = InterruptionsConfig()


class MazeConfig(_LayoutSettings):
    """A text maze, whose optimal values are known exactly."""

    kind: Literal["maze"] = "maze"
    view: Literal["map", "place"] = "map"
    """What the first observation shows: the whole map, or where one is and where the goal is."""


class QuestionsConfig(Settings):
    """Questions of a benchmark (see `stepwell problems`), one message each; with chat.codec=text and rollout.turns=1."""

    kind: Literal["questions"] = "questions"
    problems: str
    """The set that is measured on, such as math500."""
    data: str | None = None
    """Its file; none is the hub."""
    train: str | None = None
    """The set that training draws from, such as gsm8k-train; none is for measuring alone."""
    train_data: str | None = None
    """Its file; none is the hub."""
    reads: Literal["boxed", "any"] = "boxed"
    """Where the answer stands: in the last box alone, or by any sign of an answer. Train with `boxed`."""
    limit_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """Seconds of processor time that comparing an answer may take."""
    unanswered: Literal["refuse", "drop"] = "refuse"
    """What becomes of problems without an answer."""


class ReasoningConfig(_LayoutSettings):
    """Reasoning tasks whose every step is checked exactly; a line is a step."""

    kind: Literal["reasoning"] = "reasoning"
    task: Literal["arithmetic", "equations", "countdown", "words", "strings", "machine", "recurrence", "gym"] = "arithmetic"
    """`arithmetic`: expressions; `equations`: linear ones in x; `countdown`: numbers and a target, the Game of 24 too (axes.every=1);
    `words`: stories, in GSM8K's marked form; `strings`: rules that change letters; `machine`: moves from state to state;
    `recurrence`: products modulo a number, each of the one before; `gym`: a data set of the package reasoning-gym."""
    axes: dict[str, int] = Field(default_factory=dict)
    """What makes tasks hard, fixed one by one, such as `{numbers: 4, every: 1}`; what is not named follows the difficulty."""
    expert_slips: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability with which the scripted expert gets a line wrong, once in a solution at most (in a `recurrence` as often as it comes):
    fallible demonstrations."""
    dataset: str | None = None
    """With `gym`: the name of the data set, such as `chain_sum`."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 1.0
    """With `gym`: the least score of a right answer; the package's scores know partial credit."""

    @model_validator(mode="after")
    def _gym_has_a_dataset(self) -> Self:
        if (self.task == "gym") != (self.dataset is not None):
            raise ValueError(
                f"domain.dataset is {self.dataset!r} with domain.task={self.task}; task=gym needs the name of a data set of reasoning-gym, "
                "such as dataset=chain_sum, and other tasks have none"
            )
        return self


class CaveConfig(_LayoutSettings):
    """A cave with one-way passages, dead ends and treasures of different worth; the policy decides when to stop."""

    kind: Literal["cave"] = "cave"


DomainConfig = Annotated[
    Annotated[ShopConfig, Tag("shop")]
    | Annotated[BasketConfig, Tag("basket")]
    | Annotated[WebShopConfig, Tag("webshop")]
    | Annotated[MazeConfig, Tag("maze")]
    | Annotated[CaveConfig, Tag("cave")]
    | Annotated[QuestionsConfig, Tag("questions")]
    | Annotated[ReasoningConfig, Tag("reasoning")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
