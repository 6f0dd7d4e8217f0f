//! Writes the named files of `corpus/`: one for each error that a decoder can answer with, and sound ones to begin from.
//! `cargo run --release --bin seeds` after a change of the format; what the fuzzer found stands beside them under other names.

fn main() -> std::io::Result<()> {
    for (target, seeds) in loom_fuzz::seeds::all() {
        let folder = loom_fuzz::corpus(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
