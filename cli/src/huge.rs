//! Where the machine uses huge pages, as users write it: `--huge always`.

use clap::ValueEnum;

/// Which mappings get huge pages: the values of Linux's `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Huge {
    /// None.
    Never,
    /// Those for which the program asks (`MADV_HUGEPAGE`).
    Madvise,
    /// All that are large enough.
    Always,
}

impl Huge {
    /// The value of the field `huge` in `/.faultless/run`, which is also the word that Linux takes.
    pub fn field(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Madvise => "madvise",
            Self::Always => "always",
        }
    }

    /// The same for the soft machine.
    pub fn of_soft(self) -> faultless_mm::HugeMode {
        match self {
            Self::Never => faultless_mm::HugeMode::Never,
            Self::Madvise => faultless_mm::HugeMode::Advised,
            Self::Always => faultless_mm::HugeMode::Always,
        }
    }
}
