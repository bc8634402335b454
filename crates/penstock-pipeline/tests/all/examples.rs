//! The examples do what they say.

use std::process::Command;

use crate::common::pattern;

fn example(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", env!("CARGO_PKG_NAME"), "--example", name, "--"]);
    command
}

#[test]
fn assets_under_load_sums_up_what_it_reads_and_tells_the_times() {
    let path = std::env::temp_dir().join(format!("penstock-under-load-{}.zst", std::process::id()));
    let data = pattern(100_000, 1);
    std::fs::write(&path, zstd::bulk::compress(&data, 1).unwrap()).unwrap();
    let output = example("assets_under_load").arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for part in ["files ", "decompress x2", "sum ", "end to end"] {
        assert!(said.lines().any(|line| line.starts_with(part)), "{said}");
    }
    let sum: u64 = data.into_iter().map(u64::from).sum();
    assert!(said.trim_end().ends_with(&format!("sum {sum}")), "{said}");
}

#[test]
fn streaming_pipeline_reads_what_it_can_and_names_the_rest() {
    let folder = std::env::temp_dir().join(format!("penstock-example-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let data = pattern(100_000, 1);
    let [packed, broken] = ["packed.zst", "broken.zst"].map(|name| folder.join(name));
    let asset = zstd::bulk::compress(&data, 1).unwrap();
    std::fs::write(&packed, &asset).unwrap();
    std::fs::write(&broken, &asset[..5000]).unwrap();
    let output = example("streaming_pipeline").args([&broken, &packed]).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("{:08x}     100000 {}\n", crc32fast::hash(&data), packed.display()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let [fault, slow] = stderr.lines().collect::<Vec<_>>()[..] else { panic!("{stderr}") };
    assert!(fault.contains("broken.zst") && fault.ends_with("truncated"), "{stderr}");
    assert!(slow.contains("the slowest"), "{stderr}");
}
