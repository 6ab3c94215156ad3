//! The output of `stat`: a row for each counter, a column for each run; then the latencies.

use comfy_table::{Cell, Table};
use faultless_trace::Counter;

use crate::counters::FALLBACKS;
use crate::latencies;
use crate::machine::{Outcome, Request};
use crate::table::{self, grouped};

/// The text for these runs. Without a choice it has the counters that are not 0, and always those of fallbacks.
pub fn of(results: &[&(Request, Outcome)], chosen: &[&str]) -> String {
    let mut text = String::from("\n");
    for table in [counters(results, chosen), latencies(results, chosen)] {
        if !table.is_empty() {
            text.push_str(&format!("{table}\n\n"));
        }
    }
    for line in footer(results) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn counters(results: &[&(Request, Outcome)], chosen: &[&str]) -> Table {
    let mut header = vec![Cell::new("counter")];
    for (request, _) in results {
        header.push(table::number(request.policy.name()));
        header.push(table::number("per second"));
    }
    let mut table = table::new(header);
    for counter in shown(results, chosen) {
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

fn shown(results: &[&(Request, Outcome)], chosen: &[&str]) -> Vec<Counter> {
    let of_name = |name: &&str| Counter::ALL.iter().copied().find(|c| c.name() == *name);
    if !chosen.is_empty() {
        return chosen.iter().filter_map(of_name).collect();
    }
    let always = |counter: Counter| {
        let others = [Counter::Faults, Counter::Spf, Counter::SpfVmaAccess];
        others.contains(&counter) || FALLBACKS.contains(&counter)
    };
    let counted = |counter: Counter| {
        let mut outcomes = results.iter().map(|(_, outcome)| outcome);
        outcomes.any(|outcome| outcome.counters.get(counter) > 0)
    };
    let all = Counter::ALL.iter().copied();
    all.filter(|&counter| always(counter) || counted(counter))
        .collect()
}

fn rate(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    match rate {
        rate if !rate.is_finite() => "–".to_owned(),
        rate if rate >= 100.0 || count == 0 => grouped(rate.round() as u64),
        rate => format!("{rate:.2}"),
    }
}

/// A row for each thing that was measured, and each run.
fn latencies(results: &[&(Request, Outcome)], chosen: &[&str]) -> Table {
    let mut header = vec![Cell::new("latency")];
    let several = results.len() > 1;
    if several {
        header.push(Cell::new("policy"));
    }
    header.extend(["count", "p50", "p99", "max"].map(table::number));
    let mut table = table::new(header);
    for name in latencies::names() {
        if !chosen.is_empty() && !chosen.contains(&name.as_str()) {
            continue;
        }
        for (request, outcome) in results {
            let measured = outcome.latencies.as_ref();
            let Some(latency) = measured.and_then(|measured| measured.get(&name)) else {
                continue;
            };
            let mut row = vec![Cell::new(&name)];
            if several {
                row.push(Cell::new(request.policy.name()));
            }
            row.push(table::number(grouped(latency.count())));
            let times = [
                latency.percentile(0.5),
                latency.percentile(0.99),
                latency.max,
            ];
            row.extend(times.map(|time| table::number(duration(time))));
            table.add_row(row);
        }
    }
    table
}

/// Nanoseconds, in the unit that suits them.
pub fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.2} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
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
            let value = grouped(figure.value.max(0.0) as u64);
            format!(", {value} {}", figure.name)
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

#[cfg(test)]
mod tests {
    use super::{duration, rate};

    #[test]
    fn times_have_three_digits_or_so() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_250), "1.25 µs");
        assert_eq!(duration(40_000_000), "40.00 ms");
        assert_eq!(duration(3_000_000_000), "3.00 s");
    }

    #[test]
    fn a_run_without_time_has_no_rates() {
        assert_eq!(rate(5, 0.0), "–");
        assert_eq!(rate(5, 2.0), "2.50");
        assert_eq!(rate(5000, 2.0), "2,500");
    }
}
