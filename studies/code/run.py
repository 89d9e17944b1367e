"""Programs that are run in the sandbox, learnt with a process reward, alone and as the second stage behind mathematics.

    python studies/code/run.py                        # every run that is not there yet, then the table
    python studies/code/run.py --table                # from what is there, runs nothing
    python studies/code/run.py --arms rloo repirl --seeds 50
    python studies/code/run.py --tune repirl reward.lr=0.0003   # a setting on seed 90, validation problems

All runs begin as one tiny policy that has imitated an expert of programs and of sums who gets one step in five wrong (`programs.py`, folder
`base` of --runs): it can, and has a habit to lose. The judges' expert makes no mistakes. One JSON a run under results/.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import stepwell
from stepwell.build import first_tasks
from stepwell.evaluation.evaluate import evaluate
from stepwell.evaluation.intervals import Interval, bootstrap
from stepwell.files import read_json, write_atomic
from stepwell.trained import export
from stepwell.types import JSON

HERE = Path(__file__).parent
SEEDS, TUNED_ON = (50, 51), 90
ATTEMPTS = 4
_OUTCOME = ("reward.kind=outcome", "credit.kind=rloo")
_REPIRL = ("reward.kind=inverse", "reward.model=full", "reward.batch=16", "reward.lr=0.0001", "credit.kind=repirl", "credit.alpha=0.1")
_BEHIND = "@sums"
"""Arms that begin where the arm `sums` of their seed ended."""
ARMS: Mapping[str, Sequence[str]] = {
    "start": (*_OUTCOME, "steps=0"),
    "rloo": _OUTCOME,
    "repirl": (*_REPIRL, "credit.level=token"),
    "sums": (*_REPIRL, "credit.level=token"),
    f"rloo{_BEHIND}": _OUTCOME,
    f"fresh{_BEHIND}": (*_REPIRL, "credit.level=token"),
    f"carried{_BEHIND}": (*_REPIRL, "credit.level=token", "reward.start=JUDGE"),
}
"""Name -> settings: outcomes alone and rePIRL from the base; then mathematics with rePIRL, and behind it programs by outcomes, with a new
judge, and with the judge that mathematics has taught."""
SHARED = (
    *("domain.kind=programs:Programs", "chat.codec=text", "chat.tools=false", "rollout.turns=1", "rollout.max_tokens=100"),
    *("rollout.group_size=8", "engine.threads=1", "optimizer.lr=0.001", "curriculum.admit=all", "evaluation.every=0"),
)


class Scale(NamedTuple):
    """How much: steps of the warm start and of learning, test problems, what the tiny model is, training problems, and groups a step."""

    cloned: int = 3000
    steps: int = 25
    problems: int = 60
    tiny: tuple[str, ...] = ("engine.width=64", "engine.feedforward=128", "engine.max_length=512")
    train: int = 4000
    groups: int = 8

    @classmethod
    def mini(cls) -> Scale:
        """Everything once, in seconds; the numbers mean nothing."""
        tiny = ("engine.width=16", "engine.feedforward=16", "engine.max_length=512", "engine.corpus_tasks=20")
        return cls(4, 2, 3, tiny, train=20, groups=1)


def base(runs: Path, scale: Scale) -> Path:
    """The folder of the policy that all runs begin as."""
    model = runs / "base-model"
    if not model.exists():
        slips = f"domain.options={{what: both, slips: 0.2, train: {scale.train}}}"
        cloning = (f"cloning.steps={scale.cloned}", "cloning.optimizer.kind=adamw", "cloning.optimizer.lr=0.004")
        alone = ("steps=0", "evaluation.episodes=20", "seed=90", "checkpoint.every=250")
        _trained([*SHARED, *_OUTCOME, slips, *cloning, *scale.tiny, *alone], runs / "base")
        export(runs / "base", model)
    return model


def _trained(settings: Sequence[str], run: Path) -> list[dict[str, float]]:
    """All metrics of a run, which goes on where it was killed."""
    try:
        for _ in stepwell.train(stepwell.load("reasoning", settings), run, resume=True, show=True):
            pass
    except stepwell.NothingLeftError:
        pass
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def settings_of(arm: str, seed: int, runs: Path, scale: Scale) -> list[str]:
    """Of one run."""
    before = runs / f"sums-{seed}"
    model = before / "model" if arm.endswith(_BEHIND) else base(runs, scale)
    local = ("engine.kind=local", f"engine.model={model}", "engine.device=cpu", "engine.dtype=float32", "engine.micro_tokens=16384")
    chosen = [one.replace("=JUDGE", f"={before / 'run'}") for one in ARMS[arm]]
    what = "maths" if arm == "sums" else "code"
    asked = [f"domain.options={{what: {what}, train: {scale.train}}}"]
    return [
        *SHARED,
        *local,
        "cloning.steps=0",
        f"steps={scale.steps}",
        "evaluation.episodes=1",
        f"seed={seed}",
        f"rollout.groups={scale.groups}",
        *asked,
        *chosen,
    ]


def one(arm: str, seed: int, scale: Scale, runs: Path, extra: Sequence[str] = (), split: str = "test") -> dict[str, JSON]:
    """Trains and measures: pass@1 at temperature 1 of four attempts at each problem."""
    if arm.endswith(_BEHIND) and not (runs / f"sums-{seed}" / "model").exists():
        raise SystemExit(f"{arm} of seed {seed} begins where `sums` ended, which is not in {runs}; run that first.")
    folder = runs / "-".join([arm, str(seed), *extra])
    settings = [*settings_of(arm, seed, runs, scale), *extra]
    began = time.process_time()
    lines = _trained(settings, folder / "run")
    spent = time.process_time() - began
    if arm == "sums" and not (folder / "model").exists():
        export(folder / "run", folder / "model")
    opened = stepwell.open_run(folder / "run")
    return {
        "arm": arm,
        "seed": seed,
        "settings": [one for one in settings if "/" not in one],
        "success": [line["rollout/success"] for line in lines if "rollout/success" in line],
        "pairs": [line.get("judge/fresh_pair_accuracy") for line in lines if "rollout/success" in line],
        "entropy": [line["policy/entropy"] for line in lines if "rollout/success" in line],
        "cpu_s": round(spent, 1),
        "wins": measured(opened, split, scale),
    }


def measured(opened: stepwell.Trained, split: str, scale: Scale) -> list[JSON]:
    """Successes of four attempts at each problem."""
    tasks = first_tasks(opened.domain, split, scale.problems)
    groups = evaluate(opened.domain, tasks, opened.policy, opened.player.at(1.0), seed=("study",), samples=ATTEMPTS).groups
    return [sum(bool(member.verdict.success) for member in group.members) for group in groups]


def tell(out: Path) -> str:
    """The table of what is there. Intervals are over problems, drawn with all of their attempts; seeds are named, not drawn."""
    runs: dict[str, dict[int, dict[str, list[float]]]] = {}
    for file in sorted((out / "results").glob("*.json")):
        found = read_json(file)
        runs.setdefault(found["arm"], {})[found["seed"]] = found
    rows = [
        "| arm | seeds | pass@1, % | change against RLOO from the same start | training success, first and last five steps | pairs right |"
    ]
    rows += ["|---|---|---|---|---|---|"]
    for arm in [name for name in ARMS if name in runs]:
        seeds = sorted(runs[arm])
        other = "rloo" + (_BEHIND if arm.endswith(_BEHIND) else "")
        both = [seed for seed in seeds if seed in runs.get(other, {})] if arm not in (other, "start", "sums") else []
        against = _points([np.subtract(_shares(runs[arm][seed]), _shares(runs[other][seed])) for seed in both]) if both else ""
        curve = np.array([runs[arm][seed]["success"] for seed in seeds])
        told = f"{100 * curve[:, :5].mean():.0f}, {100 * curve[:, -5:].mean():.0f}" if curve.size else ""
        pairs = [value for seed in seeds for value in runs[arm][seed]["pairs"] if value is not None]
        cells = [f"`{arm}`", ", ".join(map(str, seeds)), _percent(_over([_shares(runs[arm][seed]) for seed in seeds])), against, told]
        rows.append("| " + " | ".join([*cells, f"{np.mean(pairs):.2f}" if pairs else ""]) + " |")
    return "\n".join(rows) + "\n"


def _shares(run: Mapping[str, list[float]]) -> np.ndarray:
    return np.array(run["wins"], np.float64) / ATTEMPTS


def _over(values: Sequence[np.ndarray]) -> Interval:
    """Of runs that met the same problems: a problem is drawn with what all runs made of it."""
    return bootstrap(np.concatenate(values), cluster_N=np.tile(np.arange(len(values[0])), len(values)).tolist())


def _percent(found: Interval) -> str:
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _points(values: Sequence[np.ndarray]) -> str:
    found = _over(values)
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="the table of what is there, run nothing")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--tune", nargs="+", metavar=("ARM", "KEY=VALUE"), help="try settings of an arm on the tuning seed")
    parser.add_argument("--mini", action="store_true", help="everything once, in seconds; the numbers mean nothing")
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-code", help="where run folders go")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results/ and table.md")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    scale = Scale.mini() if args.mini else Scale()
    if args.tune:
        found = one(args.tune[0], TUNED_ON, scale, args.runs, args.tune[1:], "validation")
        print(json.dumps({**found, "wins": None, "pass@1": round(float(np.mean(_shares(found))), 4)}))  # type: ignore[arg-type]
        return
    (args.out / "results").mkdir(parents=True, exist_ok=True)
    for file in (args.out / "results").glob("*.json"):
        read_json(file)  # what the table could not be made of is said before anything is trained
    for seed in [] if args.table else args.seeds:
        for arm in args.arms:
            file = args.out / "results" / f"{arm}-{seed}.json"
            if not file.exists() and (arm != "start" or seed == args.seeds[0]):
                print(f"{arm} {seed}", flush=True)
                write_atomic(file, json.dumps(one(arm, seed, scale, args.runs)) + "\n")
    write_atomic(args.out / "table.md", tell(args.out))


if __name__ == "__main__":
    main()
