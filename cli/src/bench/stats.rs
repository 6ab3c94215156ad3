//! The samples of a figure, and what is quoted of them.

use anyhow::{Result, ensure};
use serde::{Serialize, Serializer};

/// At least one finite number, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    all: Vec<f64>,
    parts: Vec<Part>,
}

/// One of the figures that a figure is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is of.
    pub name: String,
    /// In the figure's unit.
    pub value: f64,
    /// What was compared: before and after.
    pub from: f64,
    /// See `from`.
    pub to: f64,
    /// What is to be said of it; empty if nothing is.
    pub remark: &'static str,
}

impl Samples {
    /// Refuses no samples at all, and what is no number.
    pub fn new(samples: Vec<f64>) -> Result<Self> {
        ensure!(!samples.is_empty(), "no sample was taken");
        ensure!(
            samples.iter().all(|sample| sample.is_finite()),
            "a sample is not a number"
        );
        Ok(Samples {
            all: samples,
            parts: Vec::new(),
        })
    }

    /// The same, made of these.
    pub fn with_parts(self, parts: Vec<Part>) -> Self {
        Samples { parts, ..self }
    }

    /// What the figure is made of, if it is made of others.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The value that `percent` of the samples do not exceed, between neighbours in proportion.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort_by(f64::total_cmp);
        let place = percent / 100.0 * (sorted.len() - 1) as f64;
        let (below, above) = (
            sorted[place.floor() as usize],
            sorted[place.ceil() as usize],
        );
        below + (above - below) * place.fract()
    }
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn percentiles_lie_between_the_samples() {
        let samples = Samples::new(vec![30.0, 10.0, 20.0, 40.0, 50.0]).unwrap();
        assert_eq!(samples.median(), 30.0);
        assert_eq!(samples.percentile(10.0), 14.0);
        assert_eq!(samples.percentile(90.0), 46.0);
    }

    #[test]
    fn one_sample_is_everything() {
        let samples = Samples::new(vec![7.0]).unwrap();
        assert_eq!(
            [samples.percentile(10.0), samples.percentile(90.0)],
            [7.0, 7.0]
        );
    }

    #[test]
    fn nothing_is_no_sample() {
        assert!(Samples::new(vec![]).is_err());
        assert!(Samples::new(vec![1.0, f64::NAN]).is_err());
    }
}
