//! How guests of the machine work, as users write it: `--kvm`, or `--kvm=tdp_mmu=N,fast_page_fault=N`.

use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail};
use faultless_workloads::GuestOptions;

/// The parameters, with what they are in Linux.
const KNOWN: [(&str, Option<&str>); 5] = [
    ("tdp_mmu", Some("tdp_mmu")),
    // Linux has no switch for it.
    ("fast_page_fault", None),
    ("eager_page_split", Some("eager_page_split")),
    // Linux uses accessed bits always on SVM, and never dirty bits.
    ("accessed_bits", None),
    ("dirty_bits", None),
];

/// Parameters of the machine's KVM: names, and whether they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kvm(Vec<(&'static str, bool)>);

impl Kvm {
    /// The value of the field `kvm` in `/.faultless/run`: words with spaces between them.
    pub fn field(&self) -> String {
        self.words(Some)
    }

    /// The parameters of Linux's module.
    pub fn of_linux(&self) -> String {
        self.words(|name| KNOWN.iter().find(|(ours, _)| *ours == name)?.1)
    }

    /// How guests of the soft machine work.
    pub fn of_soft(&self) -> GuestOptions {
        let mut options = GuestOptions::default();
        for &(name, is_on) in &self.0 {
            match name {
                "tdp_mmu" => options.tdp_mmu = is_on,
                "fast_page_fault" => options.fast_page_fault = is_on,
                "eager_page_split" => options.eager_page_split = is_on,
                "accessed_bits" => options.accessed_bits = is_on,
                _ => options.dirty_bits = is_on,
            }
        }
        options
    }

    fn words<'a>(&'a self, name: impl Fn(&'a str) -> Option<&'a str>) -> String {
        let word = |&(own, is_on): &(&'static str, bool)| {
            Some(format!("{}={}", name(own)?, if is_on { 'Y' } else { 'N' }))
        };
        self.0.iter().filter_map(word).collect::<Vec<_>>().join(" ")
    }
}

impl FromStr for Kvm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parameters = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word
                .split_once('=')
                .with_context(|| format!("'{word}' is not NAME=Y or NAME=N"))?;
            let known = KNOWN.iter().find(|(known, _)| *known == name);
            let names = KNOWN.map(|(name, _)| name).join(", ");
            let (name, _) = known.with_context(|| format!("no parameter '{name}': {names}"))?;
            let is_on = match value {
                "Y" => true,
                "N" => false,
                _ => bail!("'{name}' is Y or N"),
            };
            parameters.push((*name, is_on));
        }
        Ok(Self(parameters))
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestOptions, Kvm};

    #[test]
    fn parameters_of_both_sides() {
        let kvm: Kvm = "tdp_mmu=N,fast_page_fault=Y,eager_page_split=N"
            .parse()
            .unwrap();
        assert_eq!(
            kvm.field(),
            "tdp_mmu=N fast_page_fault=Y eager_page_split=N"
        );
        assert_eq!(kvm.of_linux(), "tdp_mmu=N eager_page_split=N");
        assert_eq!("".parse::<Kvm>().unwrap(), Kvm::default());
        let soft = kvm.of_soft();
        assert!(!soft.tdp_mmu && soft.fast_page_fault && soft.accessed_bits && !soft.dirty_bits);
        assert!(!soft.eager_page_split && GuestOptions::default().eager_page_split);
        let kvm: Kvm = "dirty_bits=Y,accessed_bits=N".parse().unwrap();
        assert!(kvm.of_soft().dirty_bits && !kvm.of_soft().accessed_bits);
    }

    #[test]
    fn refused() {
        for (text, why) in [
            ("npt=N", "no parameter 'npt'"),
            ("tdp_mmu", "is not NAME"),
            ("tdp_mmu=1", "Y or N"),
        ] {
            let error = text.parse::<Kvm>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
