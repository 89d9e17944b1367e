"""The seven benchmarks of rePIRL asked for real: SmolLM2-135M-Instruct on a stated part of each, four samples a problem.

    python studies/benchmarks/run.py --data DIR     # what is missing, then the table; DIR holds the files named below
    python studies/benchmarks/run.py --table        # from what is there

The model is far too small for these problems: the numbers say that prompts, sampling, readers, graders, sandbox and intervals work
together, not how good anything is. GSM8K and HumanEval, at which it sometimes succeeds, stand beside them. One JSON each under results/;
what is there is not run again. The first problems of each file, in its order; answers are read by any sign of one (`domain.reads=any`) and
have 256 tokens at most. LiveCodeBench's own rows lie on the hub alone; here problems of LeetCodeDataset are written in its format
(functional tests, a name in the metadata), and their own solutions are graded first: all must pass.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from stepwell.build import first_tasks
from stepwell.evaluation.evaluate import evaluate, pass_at, pass_hat
from stepwell.files import write_atomic
from stepwell.grading.code import Code
from stepwell.grading.graded import Grade
from stepwell.trained import open_model

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MODEL, SAMPLES, SEED, TOKENS = "smollm2-135m-instruct", 4, 0, 256
PARTS: dict[str, tuple[str, str, int]] = {
    "aime24": ("aime24", "aime24.jsonl.gz", 8),
    "amc23": ("amc23", "amc23.jsonl", 8),
    "math500": ("math500", "math500.jsonl.gz", 16),
    "minerva": ("minerva", "minerva_math.jsonl.gz", 8),
    "olympiadbench": ("olympiadbench", "olympiadbench.jsonl.gz", 8),
    "leetcode": ("leetcode", "leetcode_prime_test.jsonl.gz", 8),
    "livecodebench": ("livecodebench", "leetcode_v0.3.1_test.jsonl.gz", 8),
    "gsm8k": ("gsm8k", "gsm8k_test.jsonl.gz", 24),
    "humaneval": ("humaneval", "humaneval.jsonl.gz", 8),
}
"""Name -> benchmark, file, and how many of its problems, from the first on."""


def measure(name: str, data: Path) -> dict[str, Any]:
    """Plays a part of a benchmark and sums up."""
    benchmark, file, number = PARTS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = data / file if benchmark != "livecodebench" else _in_its_format(data / file, number, Path(folder))
        return _measured(benchmark, path, number) | {"file": file}


def _in_its_format(path: Path, number: int, folder: Path) -> Path:
    """The first problems of LeetCodeDataset whose tests are plain values, as rows of LiveCodeBench; their solutions pass."""
    made: list[dict[str, Any]] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            cases = [_case(one) for one in row["input_output"]]
            if None in cases or "Node" in row["starter_code"] or len(made) == number:
                continue
            tests = {
                "public_test_cases": json.dumps([one | {"testtype": "functional"} for one in cases if one]),
                "metadata": json.dumps({"func_name": row["entry_point"].removeprefix("Solution().")}),
            }
            solution = f"{row['prompt']}\n{row['completion']}"
            grade = Code().grade(tests, f"```python\n{solution}\n```")
            assert grade.grade is Grade.RIGHT, f"the solution of {row['task_id']} is {grade}"
            made.append(
                {
                    "question_id": row["task_id"],
                    "question_content": row["problem_description"],
                    "starter_code": row["starter_code"],
                    **tests,
                }
            )
    written = folder / "livecodebench.jsonl"
    written.write_text("".join(json.dumps(one) + "\n" for one in made), encoding="utf-8")
    return written


def _case(one: dict[str, str]) -> dict[str, str] | None:
    """`n = 7, xs = [1, 2]` to a line of JSON for each argument; None where a value is none of JSON's."""
    try:
        call = ast.parse(f"f({one['input']})", mode="eval").body
        assert isinstance(call, ast.Call)
        values = [ast.literal_eval(keyword.value) for keyword in call.keywords]
        return {"input": "\n".join(map(json.dumps, values)), "output": json.dumps(ast.literal_eval(one["output"]))}
    except (SyntaxError, ValueError, TypeError):
        return None


def _measured(benchmark: str, path: Path, number: int) -> dict[str, Any]:
    settings = [
        *(f"domain.problems={benchmark}", f"domain.data={path}", "domain.reads=any", "domain.limit_s=5"),
        *("chat.codec=text", "rollout.turns=1", f"rollout.max_tokens={TOKENS}", "rollout.context=2048", "rollout.rows=32"),
        *("engine.threads=1", "engine.dtype=float32"),
    ]
    opened = open_model(MODEL, "questions", settings)
    tasks, began = first_tasks(opened.domain, "test", number), time.perf_counter()
    found = evaluate(opened.domain, tasks, opened.policy, opened.player.at(1.0), seed=(SEED, "test"), samples=SAMPLES)
    seconds = time.perf_counter() - began
    reasons = Counter(
        "right" if episode.verdict.success else episode.verdict.reason.split(":")[0] or "wrong"
        for group in found.groups
        for episode in group.members
    )
    return {
        "benchmark": benchmark,
        "problems": len(tasks),
        "samples": SAMPLES,
        **found.to_json(),
        "pass_at": {k: pass_at(found.groups, k)._asdict() for k in (1, SAMPLES)},
        "pass_hat": {k: pass_hat(found.groups, k)._asdict() for k in (SAMPLES,)},
        "verdicts": dict(reasons.most_common(12)),
        "seconds": round(seconds, 1),
    }


def table() -> str:
    """Every part that is there, with 95 % intervals over problems."""
    lines = [
        "| benchmark | problems x samples | pass@1 | pass@4 | right, wrong, not graded | tokens an answer |",
        "|---|---|---|---|---|---|",
    ]
    for name in PARTS:
        path = RESULTS / f"{name}.json"
        if path.exists():
            one = json.loads(path.read_text())
            at = {k: one["pass_at"][k] for k in ("1", "4")}
            shown = [f"{100 * v['mean']:.1f} % [{100 * v['low']:.1f}, {100 * v['high']:.1f}]" for v in at.values()]
            right, lost = one["verdicts"].get("right", 0), one["unscored"] + one["failed"]
            counts = f"{right}, {one['episodes'] - right - lost}, {lost}"
            lines.append(f"| {name} | {one['problems']} x {one['samples']} | {shown[0]} | {shown[1]} | {counts} | {one['tokens']:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the files")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        if args.data is None:
            parser.error("--data DIR says where the files are; --table runs nothing")
        RESULTS.mkdir(exist_ok=True)
        for name in args.only:
            path = RESULTS / f"{name}.json"
            if not path.exists():
                write_atomic(path, json.dumps(measure(name, args.data), indent=1) + "\n")
                print(f"{name}: done", flush=True)
    write_atomic(HERE / "table.md", table())
    print(table())


if __name__ == "__main__":
    main()
