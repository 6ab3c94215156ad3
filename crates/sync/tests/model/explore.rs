//! How models are explored; the models of other crates use this file too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Explores `model` with at most `bound` preemptions, or every interleaving.
/// `FAULTLESS_FULL=1` allows one more, `LOOM_MAX_PREEMPTIONS` says how many.
pub fn explore(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let full = std::env::var_os("FAULTLESS_FULL").is_some_and(|v| v != "0");
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = bound.map(|b| b + usize::from(full));
    }
    builder.max_branches = 50_000;
    let start = Instant::now();
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    // Shown by `--nocapture`.
    println!(
        "{} executions in {:.1?}",
        executions.load(Ordering::Relaxed),
        start.elapsed()
    );
}
