//! There are no FIFOs.

use std::borrow::Cow;
use std::path::Path;

use super::handle::{Borrowed, Handle};
use crate::sys::error::{Result, SysError};

pub(crate) fn create(_: &Path, _: u32) -> Result<()> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn find(_: &Path) -> Result<std::result::Result<Handle, Cow<'static, str>>> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn open_side(_: Borrowed<'_>, _: &Path, _: bool) -> Result<Handle> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn watch_openings(_: Borrowed<'_>) -> Result<Handle> {
    Err(SysError::UNSUPPORTED)
}
