"""What Windows doesn't have is refused by name. The platform is passed in, so that this runs on Linux, too."""

from __future__ import annotations

import errno

import pytest

from penstock._platform.refusals import ON_WINDOWS, refuse


@pytest.mark.parametrize("what", ON_WINDOWS)
def test_a_call_that_windows_lacks_raises_enotsup_and_names_what_to_use_instead(what: str) -> None:
    with pytest.raises(OSError, match=what) as raised:
        refuse(what, platform="win32")
    assert raised.value.errno == errno.ENOTSUP
    assert ON_WINDOWS[what] in str(raised.value)


@pytest.mark.parametrize("what", ON_WINDOWS)
def test_linux_refuses_none_of_them(what: str) -> None:
    refuse(what, platform="linux")
