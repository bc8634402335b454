//! All integration tests of the crate, in one binary: cargo links and runs one instead of eight.

#[cfg(all(target_os = "linux", feature = "tokio"))]
mod async_io;
mod bytes;
#[cfg(target_os = "linux")]
mod common;
#[cfg(target_os = "linux")]
mod endings;
#[cfg(target_os = "linux")]
mod examples;
#[cfg(target_os = "linux")]
mod fifo;
mod frames;
#[cfg(target_os = "linux")]
mod kernels;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod oracle;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod region;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod tee;
#[cfg(target_os = "linux")]
mod transform;
#[cfg(target_os = "linux")]
mod writer;

/// Waits for what is to come about, and fails after long.
#[track_caller]
fn eventually(mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "it has not come about");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
