"""Which loop works on which feature: a lock a feature, given back by the system if we die."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from ralph import disk


class Claims:
    """The one feature this loop works on; two loops never hold the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: contextlib.ExitStack | None = None
        self.feature: str | None = None

    def take(self, feature: str) -> bool:
        """Hold this feature and let the one before go; False when another loop has it."""
        if self.feature == feature:
            return True
        disk.make_folder(self._folder)
        stack = contextlib.ExitStack()
        try:
            stack.enter_context(disk.locked(self._lock(feature), timeout_s=0.0))
        except disk.Busy:
            return False
        self.release()
        self._held, self.feature = stack, feature
        return True

    def release(self) -> None:
        """Let the feature go."""
        if self._held is not None:
            self._held.close()
            self._held, self.feature = None, None

    def _lock(self, feature: str) -> Path:
        name = hashlib.sha256(feature.encode()).hexdigest()[:16]
        return self._folder / f"feature-{name}.lock"
