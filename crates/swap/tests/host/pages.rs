//! Pages of all kinds.

use faultless_swap::Page;

/// A small generator of random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A page that repeats a word.
pub fn word(value: u64) -> Page {
    let mut page = [0; 4096];
    page.as_chunks_mut::<8>().0.fill(value.to_le_bytes());
    page
}

/// A page that does not compress.
pub fn noise(seed: u64) -> Page {
    mixed(seed, 4096)
}

/// A page that begins with `noisy` random bytes, after which it repeats the seed.
pub fn mixed(seed: u64, noisy: usize) -> Page {
    let mut random = Random(seed);
    let mut page = word(seed);
    let words = page.as_chunks_mut::<8>().0;
    words[..noisy / 8].fill_with(|| random.next().to_le_bytes());
    page
}

/// A page of a random kind, which the seed determines.
pub fn any(seed: u64) -> Page {
    match seed % 8 {
        0 => word(seed),
        1 => noise(seed),
        _ => mixed(seed, (Random(!seed).below(512) * 8) as usize),
    }
}
