//! Debian's OpenJDK for AArch64, unmodified, with a heap that several threads touch at the start.
//! `./x test aarch64-java` fetches it and runs this test.

mod common;

use common::{run, stderr, stdout};
use faultless_tests::programs::root;

const PACKAGE: &str = ".faultless/debian-aarch64/openjdk-17-jre-headless";
const JAVA: &str = "/usr/lib/jvm/java-17-openjdk-arm64/bin/java";

/// Pages of the heap, of 4 KiB.
const HEAP: u64 = (256 << 20) / 4096;

#[test]
#[ignore = "boots the kernel: ./x test aarch64-java"]
fn a_heap_is_touched_by_several_threads() {
    let tree = root().join(PACKAGE);
    let tree = tree.to_str().expect("a path of UTF-8");
    for huge in ["never", "always"] {
        let output = run(&[
            "stat",
            "--json",
            "-",
            "--root",
            tree,
            "--memory",
            "2G",
            "--cpus",
            "2",
            "--huge",
            huge,
            "--timeout",
            "300",
            "--",
            JAVA,
            "-Xms256m",
            "-Xmx256m",
            "-XX:+UseParallelGC",
            "-XX:ParallelGCThreads=4",
            "-XX:+AlwaysPreTouch",
            "-Xshare:off",
            "-Xint",
            "-version",
        ]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{huge}: {said}");
        let file: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("a run file");
        let counted = &file["runs"][0]["counters"];
        let (faults, speculative) = (counted["faults"].as_u64(), counted["spf"].as_u64());
        let faults = faults.expect("faults are counted");
        match huge {
            "never" => assert!(faults >= HEAP, "{faults} faults, {said}"),
            _ => assert!(faults < HEAP, "{faults} faults, {said}"),
        }
        assert!(
            speculative.is_some_and(|spf| spf * 100 >= faults * 99),
            "{counted}"
        );
    }
}
