//! The thread that evaluates rules, and the way to it.
//!
//! It reads as every reader does, from snapshots of the live logs, and never holds the writer thread up: that publishes for it, says which time
//! all published records lie before, and stores its alerts.

mod action;
mod budget;
mod keeper;
mod recorder;
mod watched;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flume::{Sender, bounded, unbounded};
use loom_engine::query::Directory;

use super::DaemonError;
use super::answer::Gone;
use super::inlet::Inlet;
use crate::config::{Config, RuleDef};
use crate::rules::file::RuleFile;
use crate::threads::join;
use keeper::Keeper;

/// What a person should know of the action of a rule before it runs, in sentences.
pub(super) fn doubts(def: &RuleDef) -> Vec<String> {
    let doubts = def.action.as_ref().map(action::doubts);
    let doubts = doubts.into_iter().flatten();
    doubts
        .map(|why| format!("rule '{}': {why}", def.name))
        .collect()
}

/// What the thread is asked to do.
enum Order {
    Work(Box<dyn FnOnce(&mut Keeper) + Send>),
    Stop,
}

/// The way to the thread.
#[derive(Clone)]
pub(super) struct Rules {
    orders: Sender<Order>,
}

/// The thread. It ends with [`RulesThread::stop`].
pub(super) struct RulesThread {
    rules: Rules,
    thread: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
}

impl RulesThread {
    /// Evaluates the rules of the configuration and those that the directory keeps, from where the last daemon stopped.
    pub(super) fn start(
        dir: &Path,
        config: &Config,
        file: RuleFile,
        inlet: Inlet,
    ) -> Result<RulesThread, DaemonError> {
        let (orders, outlet) = unbounded();
        let rules = Rules { orders };
        let stopping = Arc::new(AtomicBool::new(false));
        let keeper = Keeper::open(
            config,
            file,
            inlet,
            rules.clone(),
            Arc::clone(&stopping),
            Directory::beside_writer(dir)?,
        )?;
        let thread = std::thread::Builder::new()
            .name("loom-rules".to_owned())
            .spawn(move || keeper.run(&outlet))
            .map_err(|source| DaemonError::Io {
                path: dir.to_owned(),
                source,
            })?;
        Ok(RulesThread {
            rules,
            thread,
            stopping,
        })
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Ends actions that run, and keeps how far each rule was evaluated.
    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        // A thread that is gone has panicked, which `join` reports.
        let _ = self.rules.orders.send(Order::Stop);
        join(self.thread);
    }
}

impl Rules {
    /// Does something on the thread and waits for what it returns.
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Keeper) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let (sender, receiver) = bounded(1);
        let work = move |keeper: &mut Keeper| {
            // A caller that is gone needs no answer.
            let _ = sender.send(work(keeper));
        };
        self.send(work)?;
        receiver.recv().map_err(|_| Gone)
    }

    fn send(&self, work: impl FnOnce(&mut Keeper) + Send + 'static) -> Result<(), Gone> {
        let order = Order::Work(Box::new(work));
        self.orders.send(order).map_err(|_| Gone)
    }

    /// Whether the rules of another configuration can be taken over.
    pub(super) fn check(&self, config: &Config) -> Result<Result<(), String>, Gone> {
        let config = config.clone();
        self.call(move |keeper| keeper.check(&config))
    }

    /// Takes over the rules of another configuration. Returns which of them cannot be evaluated yet, in sentences.
    pub(super) fn reconfigure(&self, config: &Config) -> Result<Vec<String>, Gone> {
        let config = config.clone();
        self.call(move |keeper| keeper.reconfigure(&config))
    }

    /// Adds the rules of a text, all or none.
    pub(super) fn add(&self, toml: &str) -> Result<Result<(), String>, Gone> {
        let toml = toml.to_owned();
        self.call(move |keeper| keeper.add(&toml))
    }

    /// Ends a rule that was added.
    pub(super) fn close(&self, name: &str) -> Result<Result<(), String>, Gone> {
        let name = name.to_owned();
        self.call(move |keeper| keeper.close(&name))
    }

    /// Every rule as it stands, as JSON.
    pub(super) fn list(&self) -> Result<String, Gone> {
        self.call(|keeper| keeper.list())
    }
}
