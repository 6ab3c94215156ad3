//! Exploration of loom models; the models of other crates use this file too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time limit for one more preemption in the long form: a few models would take hours.
const MORE: Duration = Duration::from_secs(60);

/// Explores `model` with at most `bound` preemptions, or every interleaving. `FAULTLESS_FULL=1` explores one
/// more preemption as well, for up to a minute; `LOOM_MAX_PREEMPTIONS` overrides the bound.
pub fn explore(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let full = std::env::var_os("FAULTLESS_FULL").is_some_and(|v| v != "0");
    let model = Arc::new(model);
    let asked = loom::model::Builder::new().preemption_bound;
    check(asked.or(bound), None, model.clone());
    if let (true, None, Some(bound)) = (full, asked, bound) {
        check(Some(bound + 1), Some(MORE), model);
    }
}

fn check(
    bound: Option<usize>,
    limit: Option<Duration>,
    model: Arc<impl Fn() + Send + Sync + 'static>,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 50_000;
    builder.max_duration = limit;
    builder.checkpoint_interval = 1000;
    let start = Instant::now();
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let took = start.elapsed();
    // Shown by `--nocapture`.
    println!(
        "{} executions in {took:.1?}{}",
        executions.load(Ordering::Relaxed),
        match limit.is_some_and(|limit| took >= limit) {
            true => ", which were not all",
            false => "",
        }
    );
}
