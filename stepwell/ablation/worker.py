"""One run of an ablation in a process of its own: `python -m stepwell.ablation.worker OUT VARIANT SEED`.

It ends with the process that started it, whatever that one died of: its standard input is a pipe from there, which then closes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stepwell.ablation.measure import episodes_of, measure
from stepwell.ablation.parent import end_with_parent
from stepwell.ablation.plan import Job, read_variant
from stepwell.ablation.variants import full, judged
from stepwell.ablation.warm import warm_start
from stepwell.config import Config
from stepwell.configure import dump, parse
from stepwell.errors import StepwellError
from stepwell.files import read_json, to_json, write_atomic
from stepwell.run import NothingLeftError, train
from stepwell.tracking import read_metrics

__all__ = ["finish", "main"]


def finish(job: Job) -> None:
    """Trains, or goes on where a former process was killed, and writes the result."""
    variant = read_variant(job.out, job.variant)
    base = read_json(job.out / "ablation.json")["base"]
    assert isinstance(base, dict)
    whole = full(parse(base)).model_copy(update={"seed": job.seed})
    config, played = _own(variant.config, job), 0
    told_config = config
    warm = warm_start(config, job.out / "runs")
    if variant.judge is not None:
        teaching = _own(variant.judge, job)
        _train(teaching, job.teaching, warm)
        played = int(sum(episodes_of(line, teaching.rollout.group_size) for line in read_metrics(job.teaching)))
        told_config = judged(config, str(job.teaching.relative_to(job.out)))  # results may be kept without the runs, and elsewhere
        config = judged(config, str(job.teaching.resolve()))
    _train(config, job.run, warm)
    found = measure(job.run, config, whole, episodes_before=played)
    told = {"variant": job.variant, "seed": job.seed, "config": dump(told_config), **found}
    write_atomic(job.result, to_json(told, job.name) + "\n")


def _own(config: Config, job: Job) -> Config:
    return config.model_copy(update={"seed": job.seed, "name": job.variant})


def _train(config: Config, run: Path, warm: Path | None) -> None:
    try:
        for _ in train(config, run, resume=True, warm=warm):
            pass
    except NothingLeftError:
        pass


def main() -> int:
    """Exit code 0 where the result is written, 2 where Stepwell refused (the sentence is on standard error)."""
    out, variant, seed = sys.argv[1:]
    end_with_parent()
    try:
        finish(Job(Path(out), variant, int(seed)))
    except StepwellError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
