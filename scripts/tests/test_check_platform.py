"""The checker of systems finds their names in code, and leaves comments and tests alone."""

import pytest

from scripts import check_platform


@pytest.mark.parametrize(
    "code",
    [
        "use rustix::io::Errno;",
        "use libc;",
        "unsafe { libc::close(fd) };",
        "use std::os::fd::AsFd;",
        '#[cfg(target_os = "linux")]\nmod splice;',
        "if cfg!(windows) {}",
        "#[cfg(not(unix))]\nmod pipe;",
    ],
)
def test_a_name_of_a_system_is_found(code: str) -> None:
    assert len(list(check_platform.named_in(code))) == 1


def test_comments_tests_and_modules_that_a_crate_leaves_out_do_not_count() -> None:
    code = """//! By libc::close.
#[cfg(not(target_os = "linux"))]
compile_error!("Linux only");
#[cfg(all(target_os = "linux", not(loom)))]
mod tee;
#[cfg(test)]
mod tests {
    use rustix::io::Errno;
}
"""
    assert list(check_platform.named_in(code, is_root=True)) == []
    assert len(list(check_platform.named_in(code))) == 2


def test_only_rooms_for_a_system_name_one() -> None:
    assert check_platform.main() == 0
