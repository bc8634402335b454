//! Decompresses and sums up assets on the fast cores while the machine is busy, and says how long each part took.
//!
//! ```text
//! cargo run --release --example assets_under_load -- textures/*.zst
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use penstock_cpu::Topology;
use penstock_pipeline::{Codec, Near, Options, Pipeline, Priority, Sink, Source, Stage, ThreadPolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let topology = Topology::detect();
    let (fast, is_hybrid) = (topology.performance_cpus(), topology.is_hybrid());
    println!("{} cores, hybrid: {is_hybrid}, fast CPUs: {fast:?}", topology.cores.len());

    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let load = std::thread::spawn(|| {
        let _ = ThreadPolicy::default().priority(Priority::Background).apply();
        while !IS_OVER.load(Relaxed) {
            std::hint::spin_loop();
        }
    });

    let sum = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&sum);
    let summing = Stage::map_each("sum", move |chunk| {
        total.fetch_add(chunk.iter().copied().map(u64::from).sum(), Relaxed);
        Ok(chunk)
    });
    let soon = ThreadPolicy::default().priority(Priority::AboveNormal);
    let stages = vec![
        Stage::decompress(Codec::Auto).workers(2).policy(soon.clone().cpus(fast)),
        summing.policy(ThreadPolicy::default().near(Near::Cpu(0))),
    ];
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let source = Source::files(paths).policy(soon);
    let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default())?;
    while pipeline.next(None)?.is_some() {}
    let stats = pipeline.stats()?;
    for part in &stats.stages {
        let [work, wait] = [part.work.p99_ns, part.queued.p99_ns].map(|ns| ns / 1000);
        println!("{:<10} x{}: work {work} us, queued {wait} us (99 %)", part.name, part.workers);
    }
    println!("end to end: {} us (99 %), sum {}", stats.end_to_end.p99_ns / 1000, sum.load(Relaxed));
    IS_OVER.store(true, Relaxed);
    load.join().expect("it only spins");
    Ok(())
}
