"""What one GPU does with Stepwell: the engine's contracts on CUDA, speed and memory of two model sizes, and the preset `quick`.

Run as `scripts/gpu-check`, under any Python that has torch and transformers: no network, no model file, under six minutes. `--cpu --small`
is the same in miniature, to see that the script itself works.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import transformers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from stepwell.engine.local import Budget, LocalEngine, LocalModel, Text
from stepwell.losses import PolicyLoss
from stepwell.protocols import ModelSpec
from stepwell.testing import Probe, check_engine
from stepwell.types import Ids, Row, Sampling

OPTIONAL = ("pydantic", "yaml", "typer", "rich", "matplotlib", "jinja2", "rapidfuzz", "peft")
"""What parts of Stepwell need beside torch, transformers and numpy."""
NEEDED_BY_QUICK = ("pydantic", "yaml", "rich", "matplotlib", "jinja2")


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    model: str
    result: str
    failed: bool = False


@dataclass(frozen=True)
class Size:
    """A randomly initialised Llama, and how much is asked of it."""

    name: str
    config: LlamaConfig
    rows: int = 64
    prompt: int = 256
    new: int = 128
    train_rows: int = 32


def llama(width: int, feedforward: int, layers: int, heads: tuple[int, int], vocabulary: int) -> LlamaConfig:
    """A config with tied embeddings."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=feedforward,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


TINY = llama(64, 128, 2, (4, 2), 97)
SIZES = (
    Size("135 M (as SmolLM2)", llama(576, 1536, 30, (9, 3), 49152)),
    Size("1.2 B (as Llama 3.2)", llama(2048, 8192, 16, (32, 8), 128256), train_rows=16),
)
SMALL = (Size("small", llama(32, 64, 2, (4, 2), 256), rows=4, prompt=16, new=8, train_rows=4),)


def engine_of(config: LlamaConfig, dtype: torch.dtype, device: torch.device, budget: Budget | None = None) -> LocalEngine:
    """An engine over fresh weights; no token ends a turn, so that every completion has its full length."""
    torch.manual_seed(0)
    with device:
        module: nn.Module = LlamaForCausalLM(config).to(dtype)
    return LocalEngine(module, Text(lambda ids: "", frozenset()), budget)


def tokens(config: LlamaConfig, rows: int, length: int) -> list[Ids]:
    """Random contexts of slightly different lengths."""
    draw = np.random.default_rng(0)
    return [draw.integers(0, config.vocab_size, length - row % 8).astype(np.int64) for row in range(rows)]


def timed(do: Callable[[], object], device: torch.device) -> float:
    """Seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    do()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


class Memory:
    """Peak memory of the device since the last `restart`, in GiB; on a CPU that of the process."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def restart(self) -> None:
        """Forgets earlier peaks."""
        if self._cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> str:
        """In words."""
        size = torch.cuda.max_memory_allocated() if self._cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return f"{size / 2**30:.2f} GiB"


# -- the checks ---------------------------------------------------------------------------------------------------------------


def contracts(device: torch.device) -> Iterator[Line]:
    """The engine's promises, in float32 exactly and in bfloat16 as far as it goes."""
    probes = [Probe(kind="full"), Probe(kind="full", tolerance=0.1, lr=0.15)]
    if importlib.util.find_spec("peft") is not None:
        probes.append(Probe(kind="lora", lr=0.03))  # in float32 alone: a small step of a fresh adapter is within bfloat16's rounding
    for probe in probes:
        dtype = torch.float32 if probe.tolerance < 0.01 else torch.bfloat16
        check_engine(engine_of(TINY, dtype, device), probe)
        yield Line("contract of the engine", f"tiny, {probe.kind}, {name_of(dtype)}", f"kept (log-probs within {probe.tolerance:g})")


def rollouts(size: Size, model: LocalModel, device: torch.device) -> Iterator[Line]:
    """Two turns of all rows, the second with the cache of the first and without."""
    memory = Memory(device)
    memory.restart()
    contexts = tokens(size.config, size.rows, size.prompt)
    sampling = [Sampling(max_tokens=size.new)] * size.rows
    policy = model.snapshot()
    policy.sample(contexts, [Sampling(max_tokens=2)] * size.rows, range(size.rows))  # kernels are chosen, memory is taken
    policy.forget()
    prefill = timed(lambda: policy.sample(contexts, [Sampling(max_tokens=1)] * size.rows, range(size.rows)), device)
    policy.forget()
    made = []
    both = timed(lambda: made.extend(policy.sample(contexts, sampling, range(size.rows))), device)
    decoded = size.rows * (size.new - 1) / (both - prefill)
    yield Line("decode", size.name, f"{decoded:,.0f} tokens/s at batch {size.rows}")
    yield Line("prefill", size.name, f"{sum(map(len, contexts)) / prefill:,.0f} tokens/s")
    longer = [np.concatenate([c, m.token_ids, c[:32]]) for c, m in zip(contexts, made, strict=True)]
    few = [Sampling(max_tokens=max(1, size.new // 8))] * size.rows
    kept = timed(lambda: policy.sample(longer, few, range(size.rows)), device)
    policy.forget()
    whole = timed(lambda: policy.sample(longer, few, range(size.rows)), device)
    yield Line("second turn, cache kept against history fed again", size.name, f"{whole / kept:.2f} x faster")
    yield Line("peak memory, rollout", size.name, memory.peak())
    joined = [(len(c), np.concatenate([c, m.token_ids])) for c, m in zip(contexts, made, strict=True)]
    rows = [Row.of(ids, np.arange(n, len(ids))) for n, ids in joined]
    apart = np.concatenate([m.logprobs - said for m, said in zip(made, policy.logprobs(rows), strict=True)])
    yield Line("sampler against trainer", size.name, f"rms {math.sqrt(float(np.mean(apart**2))):.2g}, max {np.abs(apart).max():.2g} nats")


def training(size: Size, model: LocalModel, device: torch.device) -> Iterator[Line]:
    """One policy update of full weights with AdamW (float32 masters and moments)."""
    memory = Memory(device)
    memory.restart()
    rows = []
    for i, ids in enumerate(tokens(size.config, size.train_rows, size.prompt + size.new + 8)):
        row = Row.of(ids, np.arange(size.prompt, len(ids)))
        rows.append(replace(row, advantage=np.full(len(row.targets), (-1.0) ** i), weight=row.weight / 1e3))

    def update() -> None:
        model.backward(rows, PolicyLoss())
        model.step(1e-6)

    update()
    seconds = timed(update, device)
    yield Line("train step", size.name, f"{sum(len(row.ids) for row in rows) / seconds:,.0f} tokens/s ({seconds:.2f} s)")
    yield Line("peak memory, train step", size.name, memory.peak())


def quick(device: torch.device, small: bool, until: float) -> Iterator[Line]:
    """The README's run, or as much of it as there is time for."""
    name = "smoke" if small else "quick"
    lacking = [package for package in NEEDED_BY_QUICK if importlib.util.find_spec(package) is None]
    if lacking:
        yield Line(f"preset {name}", "tiny", f"not run: {', '.join(lacking)} missing")
        return
    import stepwell

    settings = [f"engine.device={device.type}"] if has_device() else []
    config = stepwell.load(name, settings)
    model = f"tiny, on the {'CPU' if device.type == 'cpu' or not settings else 'GPU'}"
    total, start, done = config.cloning.steps + config.steps, time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for step, _ in stepwell.train(config, run):
            done = step
            if time.perf_counter() > until:
                break
        seconds = time.perf_counter() - start
        if done < total:
            yield Line(f"preset {name}", model, f"stopped by the clock after {done} of {total} steps, {seconds:.0f} s")
            return
        report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    yield Line(f"preset {name}", model, f"{report['train_seconds']:.0f} s of training, {seconds:.0f} s in all")
    for key, how in (("success", "temperature 1"), ("success_greedy", "greedy")):
        before, after = (100 * report[key][when]["mean"] for when in ("before", "after"))
        yield Line(f"success of preset {name}, {how}", model, f"{before:.1f} % -> {after:.1f} %")


def has_device() -> bool:
    """Whether the tiny engine can be put on a GPU."""
    from stepwell.config import TinyEngineConfig

    return "device" in TinyEngineConfig.model_fields


# -- the table ----------------------------------------------------------------------------------------------------------------


def facts(device: torch.device) -> dict[str, str]:
    """What it ran on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {
        "device": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "missing": ", ".join(package for package in OPTIONAL if importlib.util.find_spec(package) is None) or "nothing",
    }


def table(lines: list[Line], known: dict[str, str]) -> str:
    """Facts, then one aligned line for each result."""
    widths = [max((len(text) for text in column), default=0) for column in zip(*((x.what, x.model) for x in lines), strict=True)]
    head = [f"{name}: {value}" for name, value in known.items()]
    return "\n".join([*head, "", *(f"{x.what:<{widths[0]}}  {x.model:<{widths[1]}}  {x.result}" for x in lines)])


def name_of(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")


def sizes(size: Size, device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    """Rollout and training of one size."""
    model = engine_of(size.config, dtype, device, Budget(tokens=16384, rows=64)).model("policy", ModelSpec())
    yield from rollouts(size, model, device)
    yield from training(size, model, device)


def main() -> None:
    """Runs every check; one that fails is a line of the table, and the exit status says so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="on the CPU, in float32")
    parser.add_argument("--small", action="store_true", help="a toy model and the preset smoke")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE, too")
    parser.add_argument("--seconds", type=float, default=330.0, help="begin nothing and stop the preset after this time (%(default)s)")
    asked = parser.parse_args()
    if not asked.cpu and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; --cpu --small tries the script without one")
    device, dtype = (torch.device("cpu"), torch.float32) if asked.cpu else (torch.device("cuda"), torch.bfloat16)
    until = time.perf_counter() + asked.seconds
    checks: list[tuple[str, Callable[[], Iterator[Line]]]] = [
        ("contract of the engine", lambda: contracts(device)),
        *((size.name, partial(sizes, size, device, dtype)) for size in (SMALL if asked.small else SIZES)),
        ("preset", lambda: quick(device, asked.small, until)),
    ]
    lines: list[Line] = []
    for what, check in checks:
        if time.perf_counter() > until:
            lines.append(Line(what, "", "not begun: out of time"))
            continue
        try:
            for line in check():
                lines.append(line)
                print(f"{line.what}, {line.model}: {line.result}", file=sys.stderr, flush=True)
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            lines.append(Line(what, "", f"FAILED, {type(error).__name__}: {reason}", failed=True))
    known = facts(device)
    print(table(lines, known))
    if asked.json is not None:
        asked.json.write_text(json.dumps({"facts": known, "results": [asdict(line) for line in lines]}, indent=2) + "\n", encoding="utf-8")
    sys.exit(any(line.failed for line in lines))


if __name__ == "__main__":
    main()
