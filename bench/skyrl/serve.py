"""Starts a SkyRL 0.4 server on 127.0.0.1 from an environment that pip made; run by the Python of that environment.

As shipped, the API starts its engine by `uv run` in a checkout; here it is started by this Python.

    python bench/skyrl/serve.py MODEL_FOLDER PORT WORK_FOLDER [BACKEND_CONFIG_JSON]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    model, port, work = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    backend = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    work.mkdir(parents=True, exist_ok=True)
    api._build_uv_run_cmd_engine = lambda parent, config: [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]
    api.app.state.engine_config = EngineConfig(
        base_model=model,
        backend="jax",
        backend_config=backend,
        checkpoints_base=str(work / "checkpoints"),
        database_url=f"sqlite:///{work / 'tinker.db'}",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning", timeout_keep_alive=75)


if __name__ == "__main__":
    main()
