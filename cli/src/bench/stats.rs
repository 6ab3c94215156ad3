//! The samples of a figure, and what is quoted of them.

use anyhow::{Result, ensure};
use serde::Serialize;

/// At least one finite number, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Refuses no samples at all, and what is no number.
    pub fn new(samples: Vec<f64>) -> Result<Self> {
        ensure!(!samples.is_empty(), "no sample was taken");
        ensure!(
            samples.iter().all(|sample| sample.is_finite()),
            "a sample is not a number"
        );
        Ok(Samples(samples))
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The value that `percent` of the samples do not exceed, between neighbours in proportion.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = percent / 100.0 * (sorted.len() - 1) as f64;
        let (below, above) = (
            sorted[place.floor() as usize],
            sorted[place.ceil() as usize],
        );
        below + (above - below) * place.fract()
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
