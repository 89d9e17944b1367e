"""Contract checks for parts of your own: does it keep the promises that the rest of Stepwell builds on?

```python
from stepwell.testing import check_environment

def test_my_environment():
    domain = MyDomain()
    for task in domain.tasks("test")[:5]:
        check_environment(domain, task)
```

A check returns nothing, or raises `ContractViolation` with a sentence that says which promise was broken and how.
"""

from stepwell.errors import ContractViolation
from stepwell.testing.engine import Probe, check_engine
from stepwell.testing.environment import check_environment
from stepwell.testing.reward import check_reward

__all__ = ["ContractViolation", "Probe", "check_engine", "check_environment", "check_reward"]
