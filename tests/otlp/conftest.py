"""The fixtures that the tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver import Receiver, receiving


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as receiver:
        yield receiver
