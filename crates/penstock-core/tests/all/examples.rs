//! The examples do what they say.

use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use crate::common::{pattern, unnamed_file};

fn example(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", env!("CARGO_PKG_NAME"), "--example", name, "--"]);
    command
}

#[test]
fn copy_file_to_pipe_copies_by_splice() {
    let file = env!("CARGO_MANIFEST_DIR").to_owned() + "/src/relay/transfer.rs";
    let output = example("copy_file_to_pipe").arg(&file).output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == std::fs::read(&file).unwrap());
    assert!(String::from_utf8(output.stderr).unwrap().contains("bytes by splice"));
}

#[test]
fn pipes_and_fifos_pass_a_file_on() {
    let file = env!("CARGO_MANIFEST_DIR").to_owned() + "/src/relay/transfer.rs";
    let copy = unnamed_file();
    let path = format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd());
    let output = example("pipes_and_fifos").args([&file, &path]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let bytes = std::fs::read(&file).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);
    let each = format!("{} bytes by splice", bytes.len());
    assert_eq!(said.lines().filter(|line| line.starts_with(&each)).count(), 4, "{said}");
}

#[test]
fn tee_to_many_serves_all() {
    let data = pattern(300_000, 1);
    let mut files = [unnamed_file(), unnamed_file()];
    let paths = files.each_ref().map(|file| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    let mut child = example("tee_to_many")
        .args(&paths)
        .arg("/dev/full")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&data).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for file in &mut files {
        let mut got = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut got).unwrap();
        assert!(got == data);
    }
    assert!(said.contains("300000 bytes by tee, splice, source-ended"), "{said}");
    assert!(said.contains("/dev/full: 0 bytes by tee, read-write, failed"), "{said}");
}
