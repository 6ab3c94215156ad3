//! Which accesses fault, and the contents of the signal: `si_code` is SEGV_ACCERR if there is a
//! mapping that does not allow the access and SEGV_MAPERR if there is none, `si_addr` is the
//! address of the access.

use faultless_mm::Access::{Execute, Read, Write};
use faultless_mm::SegvCode::{AccErr, MapErr};
use faultless_mm::{PROT_EXEC, PROT_READ};

use super::check::{Failure, allowed, ensure, faults};
use super::pages::{NONE, RW, fill, map_pages, protect, read, unmap, write};
use crate::system::{PAGE, Thread, image};

pub fn prot_none(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 1, NONE)?;
    faults(t, AccErr, Read, p)?;
    faults(t, AccErr, Write, p + PAGE - 1)?;
    unmap(t, p, 1)?;
    Ok(())
}

pub fn guard_between(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    protect(t, p + PAGE, 1, NONE)?;
    fill(t, p, PAGE, 7)?;
    fill(t, p + 2 * PAGE, PAGE, 7)?;
    faults(t, AccErr, Write, p + PAGE)?;
    faults(t, AccErr, Read, p + PAGE + 123)?;
    faults(t, AccErr, Write, p + 2 * PAGE - 1)?;
    allowed(t, Read, p + PAGE - 1)?;
    allowed(t, Read, p + 2 * PAGE)?;
    unmap(t, p, 3)?;
    Ok(())
}

pub fn null(t: &Thread<'_>) -> Result<(), Failure> {
    faults(t, MapErr, Read, 0)?;
    faults(t, MapErr, Write, 8)?;
    faults(t, MapErr, Execute, 16)
}

pub fn unmapped(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    fill(t, p, 3 * PAGE, 7)?;
    unmap(t, p + PAGE, 1)?;
    faults(t, MapErr, Read, p + PAGE)?;
    faults(t, MapErr, Write, p + 2 * PAGE - 1)?;
    let neighbours = (read(t, p + PAGE - 1)?, read(t, p + 2 * PAGE)?);
    ensure!(neighbours == (7, 7), "a neighbour lost its contents");
    unmap(t, p, 3)?;
    faults(t, MapErr, Read, p)?;
    faults(t, MapErr, Read, p + 2 * PAGE)
}

pub fn read_only(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, PROT_READ)?;
    // Never touched; read before; written before.
    faults(t, AccErr, Write, p)?;
    ensure!(read(t, p + PAGE)? == 0, "a fresh page is not zero");
    faults(t, AccErr, Write, p + PAGE)?;
    protect(t, p + 2 * PAGE, 1, RW)?;
    write(t, p + 2 * PAGE, 7)?;
    protect(t, p + 2 * PAGE, 1, PROT_READ)?;
    faults(t, AccErr, Write, p + 2 * PAGE)?;
    let contents = (read(t, p)?, read(t, p + PAGE)?, read(t, p + 2 * PAGE)?);
    ensure!(contents == (0, 0, 7), "contents changed");
    unmap(t, p, 3)?;
    Ok(())
}

pub fn not_executable(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, RW)?;
    faults(t, AccErr, Execute, p)?;
    write(t, p + PAGE, 7)?;
    faults(t, AccErr, Execute, p + PAGE)?;
    unmap(t, p, 2)?;
    Ok(())
}

pub fn executable(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 1, RW)?;
    // An instruction (ret), though the soft machine does not decode it.
    write(t, p, 0xc3)?;
    faults(t, AccErr, Execute, p)?;
    protect(t, p, 1, PROT_READ | PROT_EXEC)?;
    allowed(t, Execute, p)?;
    faults(t, AccErr, Write, p)?;
    protect(t, p, 1, PROT_READ)?;
    faults(t, AccErr, Execute, p)?;
    unmap(t, p, 1)?;
    Ok(())
}

pub fn program_image(t: &Thread<'_>) -> Result<(), Failure> {
    faults(t, AccErr, Write, image::TEXT)?;
    faults(t, AccErr, Write, image::CONSTANTS)?;
    faults(t, AccErr, Execute, image::DATA)
}

pub fn kernel_half(t: &Thread<'_>) -> Result<(), Failure> {
    faults(t, MapErr, Read, 0xffff_8000_0000_0000)?;
    faults(t, MapErr, Write, 0xffff_ffff_8100_0000)?;
    // x86-64 has a different fault here: see the crate's front page.
    faults(t, MapErr, Read, 0x8000_0000_0000_0000)
}
