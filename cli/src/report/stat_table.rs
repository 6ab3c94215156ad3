//! What `stat` shows: a row for each counter, a column for each run.

use comfy_table::Cell;
use faultless_trace::Counter;

use crate::counters::FALLBACKS;
use crate::machine::{Outcome, Request};
use crate::table::{self, grouped};

/// The text for these runs. Without a choice of counters: those that are not 0, and the reasons.
pub fn of(results: &[&(Request, Outcome)], chosen: &[Counter]) -> String {
    let mut text = format!("\n{}\n", counters(results, chosen));
    for line in footer(results) {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text
}

fn counters(results: &[&(Request, Outcome)], chosen: &[Counter]) -> comfy_table::Table {
    let mut header = vec![Cell::new("counter")];
    for (request, _) in results {
        header.push(table::number(request.policy.name()));
        header.push(table::number("per second"));
    }
    let mut table = table::new(header);
    let always = |counter: Counter| {
        let reported = [Counter::Faults, Counter::Spf, Counter::SpfVmaAccess];
        reported.contains(&counter) || FALLBACKS.contains(&counter)
    };
    let counted = |counter: Counter| {
        results
            .iter()
            .any(|(_, outcome)| outcome.counters.get(counter) > 0)
    };
    let shown: Vec<Counter> = if chosen.is_empty() {
        let all = Counter::ALL.iter().copied();
        all.filter(|&counter| always(counter) || counted(counter))
            .collect()
    } else {
        chosen.to_vec()
    };
    for counter in shown {
        let mut row = vec![Cell::new(counter.name())];
        for (_, outcome) in results {
            let count = outcome.counters.get(counter);
            row.push(table::number(grouped(count)));
            row.push(table::number(rate(count, outcome.seconds)));
        }
        table.add_row(row);
    }
    table
}

fn rate(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    match rate {
        rate if !rate.is_finite() => "–".to_owned(),
        rate if rate >= 100.0 || count == 0 => grouped(rate.round() as u64),
        rate => format!("{rate:.2}"),
    }
}

/// One line a run: what does not fit a column of counts.
fn footer(results: &[&(Request, Outcome)]) -> Vec<String> {
    let line = |(request, outcome): &&(Request, Outcome)| {
        let share = outcome.counters.share_speculative().map_or_else(
            || "no faults".to_owned(),
            |share| format!("{:.3} % of faults speculative", share * 100.0),
        );
        let figure = outcome.figure.as_ref().map_or_else(String::new, |figure| {
            format!(
                ", {} {}",
                grouped(figure.value.max(0.0) as u64),
                figure.name
            )
        });
        format!(
            "{}, {} CPUs: {:.3} s, {share}{figure}",
            request.policy.name(),
            request.cpus,
            outcome.seconds
        )
    };
    results.iter().map(line).collect()
}
