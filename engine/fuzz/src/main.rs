//! The program of the target that `LOOM_TARGET` names: the fuzzer, or without it a run over the files that the command line names.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static TARGET: std::sync::LazyLock<loom_fuzz::Target> =
        std::sync::LazyLock::new(loom_fuzz::Target::chosen);
    std::hint::black_box(TARGET.run(bytes));
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    let target = loom_fuzz::Target::chosen();
    for path in std::env::args_os().skip(1) {
        let path = std::path::PathBuf::from(path);
        println!("{}: {}", path.display(), target.run(&std::fs::read(&path)?));
    }
    Ok(())
}
