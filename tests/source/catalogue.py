"""The whole catalogue; see `cases`."""

from tests.source.cases import *  # noqa: F403
from tests.source.flow import *  # noqa: F403
from tests.source.straight import *  # noqa: F403
from tests.source.structure import *  # noqa: F403
