//! Exploration of loom models; the models of other crates use this file too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[allow(dead_code)]
#[path = "budget.rs"]
mod budget;

use budget::Budget;

/// Explores `model` with at most `bound` preemptions, or every interleaving. `./x test --full` explores one
/// more preemption as well, for the model's share of the budget; `LOOM_MAX_PREEMPTIONS` overrides the bound.
pub fn explore(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let asked = loom::model::Builder::new().preemption_bound;
    let more = bound.filter(|_| asked.is_none() && budget::share().is_some());
    let budget = more.map(|_| Budget::new(1, "executions", None));
    let executions = check(asked.or(bound), None, model.clone());
    let (Some(bound), Some(budget)) = (more, budget) else {
        // Shown by `--nocapture`.
        return println!("{executions} executions");
    };
    budget.add(executions);
    if !budget.left().is_zero() {
        budget.add(check(Some(bound + 1), Some(budget.left()), model));
    }
}

/// Returns the number of executions.
fn check(
    bound: Option<usize>,
    limit: Option<Duration>,
    model: Arc<impl Fn() + Send + Sync + 'static>,
) -> u64 {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 50_000;
    builder.max_duration = limit;
    builder.checkpoint_interval = 1000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    executions.load(Ordering::Relaxed) as u64
}
