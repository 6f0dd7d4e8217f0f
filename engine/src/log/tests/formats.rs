//! A directory keeps the format that it was made with.

use super::*;
use crate::log::files::mirrored::Mirrored;
use crate::log::storage::OsStorage;
use crate::schema::parse_sources;
use crate::testkit::asked::payloads;

#[test]
fn a_directory_of_format_4_is_written_on_and_its_rows_share_no_strings() {
    let file_bytes = |format: u64| {
        let scene = Scene::new();
        let log = &scene.options.log;
        let meta = DirMeta {
            format,
            ..DirMeta::new(log.chunk_bytes, log.segment_bytes)
        };
        std::fs::create_dir(scene.dir()).unwrap();
        meta.store(&OsStorage::default(), &scene.dir()).unwrap();
        let mut pushed = Vec::new();
        for _ in 0..2 {
            let mut writer = scene.writer();
            let toml = "[[source]]\nname = 's'\nfield = [{ name = 'text', type = 'utf8' }]";
            let source = writer.define_source(&parse_sources(toml).unwrap()[0]);
            let source = source.unwrap();
            for nth in 0..20_000u64 {
                let text = format!("number {} of five", nth.wrapping_mul(nth) % 5);
                let payload = [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
                writer.push(source, &payload).unwrap();
                pushed.push(payload);
            }
            writer.close().unwrap();
        }
        assert!(payloads(&scene.dir(), "s") == pushed);
        assert_eq!(scene.reader().meta(), &meta);
        let files = std::fs::read_dir(scene.dir().join(LogKind::Records.dir_name()));
        let files = files.unwrap().map(|file| file.unwrap().metadata().unwrap());
        files.map(|file| file.len()).sum::<u64>()
    };
    assert_ne!(file_bytes(4), file_bytes(5));
}
