"""Sets of problems from the Hugging Face hub.

Read is the copy in Parquet that the hub keeps of each set (its branch `refs/convert/parquet`): no script of a set's author is run, and
nothing is unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import DataError

__all__ = ["HubSet", "fetch"]

_BRANCH = "refs/convert/parquet"


@dataclass(frozen=True, slots=True)
class HubSet:
    """A set on the hub: its id, a split, and a configuration."""

    id: str
    split: str
    config: str = "default"


def fetch(where: HubSet) -> list[Path]:
    """The Parquet files of a set, from the hub or from its cache on this machine.

    Raises:
        DataError: The hub cannot be reached, has no such set, or no such split; names the way with a local file.
    """
    from huggingface_hub import HfApi, hf_hub_download

    try:
        listed = HfApi().list_repo_files(where.id, repo_type="dataset", revision=_BRANCH)
        folder = f"{where.config}/{where.split}/"
        wanted = sorted(name for name in listed if name.startswith(folder) and name.endswith(".parquet"))
        files = [Path(hf_hub_download(where.id, name, repo_type="dataset", revision=_BRANCH)) for name in wanted]
    except Exception as error:  # the client raises the errors of several libraries, which differ from version to version
        raise DataError(f"{where.id} could not be fetched from the Hugging Face hub ({_why(error)}). {_BY_HAND}") from None
    if not files:
        folders = sorted({name.rpartition("/")[0] for name in listed if name.endswith(".parquet")})
        raise DataError(f"{where.id} has no {folder} on the hub; it has {', '.join(folders) or 'no Parquet files'}. {_BY_HAND}")
    return files


_BY_HAND = (
    "Where there is no network, fetch its JSON or Parquet file on another machine and name it: --file FILE, or data=FILE for a domain."
)


def _why(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:150]}" if lines else type(error).__name__
