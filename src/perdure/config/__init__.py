"""Every setting there is, and the one function that finds out what each of them is.

A setting has one name everywhere: `retry_attempts` in a file, `PERDURE_RETRY_ATTEMPTS` in the environment. Who is
nearer decides: the command line, then the environment, then the project's file, then the user's, then the default.
Only a door calls `load`; everything else is handed the `Settings` that it found.
"""

from perdure.config.load import Loaded, load
from perdure.config.settings import MODES, Mode, Provider, Secret, Settings, masked_url

__all__ = ["MODES", "Loaded", "Mode", "Provider", "Secret", "Settings", "load", "masked_url"]
