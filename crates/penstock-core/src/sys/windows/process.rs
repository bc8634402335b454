//! What happens to the process: its load and its end. There are no forks.

use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Storage::FileSystem::WriteFile;

/// Nothing has to be done before the first fork.
macro_rules! at_load {
    ($function:ident) => {
        const _: extern "C" fn() = $function;
    };
}
pub(crate) use at_load;

pub(crate) fn at_fork(_: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

unsafe extern "C" {
    fn atexit(run: extern "C" fn()) -> i32;
}

/// Calls the function when the process ends: atexit of the C library.
pub(crate) fn at_exit(run: extern "C" fn()) {
    // SAFETY: a plain function of this library, which is never unloaded.
    unsafe { atexit(run) };
}

/// Writes to stderr, not by `eprintln`, whose lock another thread may hold.
pub(crate) fn complain(message: &str) {
    let (mut taken, bytes) = (0, u32::try_from(message.len()).unwrap_or(u32::MAX));
    // SAFETY: the message is readable during the call.
    unsafe {
        WriteFile(std::io::stderr().as_raw_handle(), message.as_ptr(), bytes, &raw mut taken, ptr::null_mut())
    };
}
