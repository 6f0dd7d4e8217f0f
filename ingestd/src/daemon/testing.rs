//! The writer thread of a small directory, for unit tests of its producers.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use loom_engine::ingest::Writer;
use loom_engine::log::Durability;

use super::clock::ClockWatch;
use super::forgetting::Forgetting;
use super::inlet::Inlet;
use super::message::{Inbox, Message};
use super::recorder::Recorder;
use super::retention::Retention;
use super::self_metrics::SelfMetrics;
use super::writer_thread::WriterThread;
use crate::config::{ArchiveConfig, RetentionConfig};
use crate::losses::Losses;
use crate::testing::small_writer;

/// A recorder without retention, metrics and durability.
pub(super) fn recorder(mut writer: Writer) -> Recorder {
    let dir = writer.dir().to_owned();
    let losses = Losses::open(&mut writer).unwrap();
    let clock = ClockWatch::open(&dir, &mut writer).unwrap();
    let config = (RetentionConfig::default(), ArchiveConfig::default());
    let recorder = Recorder::new(
        writer,
        losses,
        Retention::new(&dir, config.0, config.1, clock),
        Forgetting::new(|_| false),
        SelfMetrics::new(Duration::ZERO),
        Durability::None,
        Arc::default(),
    );
    recorder.unwrap()
}

/// A running writer thread, which ends with it.
pub(crate) struct Scene {
    pub(crate) dir: PathBuf,
    pub(super) inbox: Inbox,
    thread: Option<JoinHandle<()>>,
    _place: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn start(prepare: impl FnOnce(&mut Writer)) -> Scene {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        prepare(&mut writer);
        let thread = WriterThread::new(recorder(writer));
        let (inbox, outlet) = Inbox::new();
        let thread = std::thread::spawn(move || {
            // A test may take its directory away.
            let _ = thread.run(&outlet);
        });
        Scene {
            dir,
            inbox,
            thread: Some(thread),
            _place: place,
        }
    }

    pub(crate) fn inlet(&self) -> Inlet {
        Inlet::open(&self.inbox).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let peers = Vec::new();
        let sent = self.inbox.send(Message::Stop { peers });
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            sent.unwrap();
            ended.unwrap().unwrap();
        }
    }
}
