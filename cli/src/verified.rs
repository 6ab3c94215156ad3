//! The kernel's report about its own verification.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The totals of all verifications. Each of them passed, unless the run has failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Verified {
    /// The number of verifications.
    moments: u64,
    /// The most address spaces, and the most pages that they mapped, at one moment.
    spaces: u64,
    pages: u64,
    /// Frames by use at the last moment, after all processes had ended.
    frames: Option<BTreeMap<String, u64>>,
}

impl Verified {
    /// The totals in words.
    pub fn line(&self) -> String {
        let all: u64 = self.frames.iter().flat_map(BTreeMap::values).sum();
        format!(
            "verified {} times, with up to {} address spaces and {} pages: none of {all} frames is lost",
            self.moments, self.spaces, self.pages
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Verified;

    #[test]
    fn frames_add_up() {
        let text = r#"{"moments":3,"spaces":2,"pages":7,"frames":{"free":90,"stacks":10}}"#;
        let verified: Verified = serde_json::from_str(text).unwrap();
        assert!(verified.line().contains("none of 100 frames"));
    }
}
