//! What a guest may do without leaving: no access to a port, and only the model-specific registers that are
//! switched with the guest.

/// The bitmap of ports: all set, so that each access leaves the guest.
#[repr(C, align(4096))]
pub struct Ports([u8; 3 * 4096]);

/// The bitmap of model-specific registers: two bits each, for reads and writes.
#[repr(C, align(4096))]
pub struct Messages([u8; 2 * 4096]);

static PORTS: Ports = Ports([0xff; 3 * 4096]);
static MESSAGES: Messages = Messages(allow(&[
    0x174, // SYSENTER_CS, _ESP, _EIP
    0x175,
    0x176,
    0xc000_0081, // STAR
    0xc000_0082, // LSTAR
    0xc000_0083, // CSTAR
    0xc000_0084, // SFMASK
    0xc000_0100, // FS base
    0xc000_0101, // GS base
    0xc000_0102, // kernel GS base
]));

/// The bitmap that lets these registers through: those that `vmload` and `vmsave` switch.
const fn allow(registers: &[u32]) -> [u8; 2 * 4096] {
    let mut bits = [0xff; 2 * 4096];
    let mut next = 0;
    while next < registers.len() {
        let register = registers[next];
        let base = match register {
            0..=0x1fff => 0,
            _ => 0x800,
        };
        let at = base + (register & 0x1fff) as usize / 4;
        bits[at] &= !(3 << (2 * (register % 4)));
        next += 1;
    }
    bits
}

/// The physical address of the bitmap of ports.
pub fn ports() -> u64 {
    super::physical(&PORTS)
}

/// The physical address of the bitmap of model-specific registers.
pub fn messages() -> u64 {
    super::physical(&MESSAGES)
}
