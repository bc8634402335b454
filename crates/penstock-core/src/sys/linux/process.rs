//! What happens to the process: its load, its forks and its end.

use std::os::fd::AsFd;

/// Calls a function when the library is loaded: once, and before anything else of it.
macro_rules! at_load {
    ($function:ident) => {
        #[used]
        // SAFETY: what stands in this section is called once, before anything else of this library.
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = $function;
    };
}
pub(crate) use at_load;

/// Calls the functions around each fork from now on: pthread_atfork(3). They are plain functions of this library, which is never
/// unloaded.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the functions stay where they are. If there is no memory for them, no fork will work either.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Calls the function when the process ends: atexit(3).
pub(crate) fn at_exit(run: extern "C" fn()) {
    // SAFETY: a plain function of this library, which is never unloaded.
    unsafe { libc::atexit(run) };
}

/// Writes to stderr, not by `eprintln`, whose lock another thread may hold.
pub(crate) fn complain(message: &str) {
    let _ = rustix::io::write(std::io::stderr().as_fd(), message.as_bytes());
}
