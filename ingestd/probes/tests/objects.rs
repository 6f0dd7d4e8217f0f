//! The objects that are kept are what the sources compile to, byte for byte, for each processor.

use std::path::Path;
use std::process::Command;

// case Recording: objects and sources
#[test]
fn the_objects_are_what_the_sources_compile_to() {
    let found = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let headers = Path::new("/usr/include/bpf/bpf_helpers.h");
    if !(found("clang") && found("llvm-strip") && headers.exists()) {
        let missing = "clang, llvm-strip or libbpf's headers are missing";
        assert!(
            std::env::var_os("CI").is_none(),
            "{missing}, and CI skips nothing"
        );
        println!("skipped: {missing}");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = ["-D__TARGET_ARCH_x86", "-D__TARGET_ARCH_arm64"].map(|processor| {
        let fresh = tempfile::tempdir().unwrap();
        let mut build = Command::new(here.join("build"));
        let compiled = build.arg(fresh.path()).arg(processor).output().unwrap();
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        fresh
    });
    let [x86, arm64] = &fresh;
    let sources = std::fs::read_dir(here.join("bpf")).unwrap();
    let names = sources.filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        Some(format!("{}.o", name.strip_suffix(".bpf.c")?))
    });
    let names: Vec<String> = names.collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let [kept, x86, arm64] = [&here.join("bpf"), x86.path(), arm64.path()].map(|folder| {
            std::fs::read(folder.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        assert!(
            kept == x86,
            "bpf/{name} is not what its source compiles to; run 'make probes' and commit it"
        );
        assert!(x86 == arm64, "bpf/{name} is of one processor alone");
    }
}
