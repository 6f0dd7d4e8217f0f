//! The thread that evaluates rules, and the orders to it.
//!
//! It reads snapshots of the live logs, as every reader does. The writer thread never waits for it: it publishes, returns a time before the arrival
//! of all later records, and stores alerts.

mod action;
mod budget;
mod by_hand;
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

pub(super) use by_hand::{Asker, ByHand};

/// Returns warnings about the action of a rule before it runs.
pub(super) fn doubts(def: &RuleDef) -> Vec<String> {
    let doubts = def.action.as_ref().map(action::doubts);
    let doubts = doubts.into_iter().flatten();
    doubts
        .map(|why| format!("rule '{}': {why}", def.name))
        .collect()
}

enum Order {
    Work(Box<dyn FnOnce(&mut Keeper) + Send>),
    Stop,
}

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
    /// Evaluates the rules of the configuration and those of the directory, from where the last daemon stopped.
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

    /// Ends actions that run, and records the progress of each rule.
    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        // A thread that is gone has panicked, which `join` reports.
        let _ = self.rules.orders.send(Order::Stop);
        join(self.thread);
    }
}

impl Rules {
    /// Runs some work on the thread and waits for its result.
    pub(super) fn call<R: Send + 'static>(
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

    /// Keeps the latest records. The asker gets the answer once they are kept.
    pub(super) fn pin(&self, asked: ByHand) -> Result<(), Gone> {
        self.send(move |keeper| keeper.pin_by_hand(asked))
    }

    fn send(&self, work: impl FnOnce(&mut Keeper) + Send + 'static) -> Result<(), Gone> {
        let order = Order::Work(Box::new(work));
        self.orders.send(order).map_err(|_| Gone)
    }
}
