//! Changes of mappings by one thread: which accesses are allowed before and after, the content of the
//! pages, and the error codes.

use faultless_mm::Access::{Read, Write};
use faultless_mm::SegvCode::{AccErr, MapErr};
use faultless_mm::{Errno, PROT_READ, advice, flags};

use super::check::{Failure, allowed, ensure, faults};
use super::pages::{
    ANONYMOUS, NONE, RW, advise, all_zero, fill, map_over, map_pages, protect, read, unmap, write,
};
use crate::system::{PAGE, Thread};

pub fn none_and_back(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, RW)?;
    fill(t, p, PAGE, 7)?; // the second page stays untouched
    protect(t, p, 2, NONE)?;
    faults(t, AccErr, Read, p)?;
    faults(t, AccErr, Read, p + PAGE)?;
    protect(t, p, 2, RW)?;
    let ends = (read(t, p)?, read(t, p + PAGE - 1)?);
    ensure!(ends == (7, 7), "contents lost");
    ensure!(
        all_zero(t, p + PAGE, PAGE)?,
        "an untouched page is not zero"
    );
    allowed(t, Write, p)?;
    unmap(t, p, 2)?;
    Ok(())
}

pub fn parts(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 8, RW)?;
    fill(t, p, 8 * PAGE, 7)?;
    for i in (0..8).step_by(2) {
        protect(t, p + i * PAGE, 1, PROT_READ)?;
    }
    for i in 0..8 {
        if i % 2 == 0 {
            faults(t, AccErr, Write, p + i * PAGE)?;
        } else {
            allowed(t, Write, p + i * PAGE)?;
        }
    }
    protect(t, p, 8, RW)?;
    (0..8).try_for_each(|i| allowed(t, Write, p + i * PAGE))?;
    ensure!(read(t, p + 5 * PAGE + 1)? == 7, "contents lost");
    unmap(t, p, 8)?;
    Ok(())
}

pub fn protect_hole(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    unmap(t, p + PAGE, 1)?;
    let result = t.call(|space| space.mprotect(p, 3 * PAGE, PROT_READ))?;
    ensure!(
        result == Err(Errno::ENOMEM),
        "no ENOMEM for a range with a hole"
    );
    // The change applies up to the hole.
    faults(t, AccErr, Write, p)?;
    allowed(t, Write, p + 2 * PAGE)?;
    unmap(t, p, 3)?;
    Ok(())
}

pub fn fixed_over(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    fill(t, p, 3 * PAGE, 7)?;
    let there = map_over(t, p + PAGE, 1, RW)? == Ok(p + PAGE);
    ensure!(there, "not where it must be");
    ensure!(
        all_zero(t, p + PAGE, PAGE)?,
        "old contents in the new mapping"
    );
    let neighbours = (read(t, p + PAGE - 1)?, read(t, p + 2 * PAGE)?);
    ensure!(neighbours == (7, 7), "a neighbour lost its contents");
    let there = map_over(t, p + PAGE, 1, NONE)? == Ok(p + PAGE);
    ensure!(there, "not where it must be");
    faults(t, AccErr, Read, p + PAGE)?;
    let no_replace = ANONYMOUS | flags::FIXED_NOREPLACE;
    let result = t.call(|space| space.mmap(p, PAGE, RW, no_replace))?;
    let refused = result == Err(Errno::EEXIST);
    ensure!(refused, "MAP_FIXED_NOREPLACE over a mapping: no EEXIST");
    ensure!(read(t, p)? == 7, "MAP_FIXED_NOREPLACE replaced");
    unmap(t, p, 3)?;
    Ok(())
}

pub fn dontneed(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 4, RW)?;
    fill(t, p, 4 * PAGE, 7)?;
    let result = advise(t, p + PAGE, 2, advice::DONTNEED)?;
    ensure!(result.is_ok(), "{result:?}");
    ensure!(
        all_zero(t, p + PAGE, 2 * PAGE)?,
        "old contents after MADV_DONTNEED"
    );
    let neighbours = (read(t, p)?, read(t, p + 3 * PAGE)?);
    ensure!(neighbours == (7, 7), "a neighbour lost its contents");
    allowed(t, Write, p + PAGE)?;
    unmap(t, p, 4)?;
    Ok(())
}

pub fn populate(t: &Thread<'_>) -> Result<(), Failure> {
    const COUNT: u64 = 64;
    let populate = ANONYMOUS | flags::POPULATE;
    let result = t.call(|space| space.mmap(0, COUNT * PAGE, RW, populate))?;
    let p = result.map_err(|e| Failure::Explained(e.to_string()))?;
    let before = t.process().faults();
    (0..COUNT).try_for_each(|i| write(t, p + i * PAGE, 7))?;
    let faults = t.process().faults() - before;
    ensure!(faults < 8, "{faults} faults on {COUNT} populated pages");
    ensure!(
        all_zero(t, p + 1, PAGE - 1)?,
        "a populated page is not zero"
    );
    unmap(t, p, COUNT)?;
    Ok(())
}

pub fn madvise_populate(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 4, RW)?;
    let result = advise(t, p, 2, advice::POPULATE_READ)?;
    ensure!(result.is_ok(), "read: {result:?}");
    let result = advise(t, p, 4, advice::POPULATE_WRITE)?;
    ensure!(result.is_ok(), "write: {result:?}");
    ensure!(all_zero(t, p, 4 * PAGE)?, "a populated page is not zero");
    allowed(t, Write, p)?;
    protect(t, p, 1, PROT_READ)?;
    let refused = advise(t, p, 1, advice::POPULATE_WRITE)? == Err(Errno::EINVAL);
    ensure!(refused, "populate for writing, read-only: no EINVAL");
    unmap(t, p + PAGE, 1)?;
    let refused = advise(t, p, 4, advice::POPULATE_READ)? == Err(Errno::ENOMEM);
    ensure!(refused, "populate over a hole: no ENOMEM");
    unmap(t, p, 4)?;
    Ok(())
}

pub fn brk(t: &Thread<'_>) -> Result<(), Failure> {
    let brk = |to| t.call(|space| space.brk(to));
    let old = brk(0)?;
    let p = old.next_multiple_of(PAGE);
    let grown = p + 2 * PAGE;
    ensure!(brk(grown)? == grown, "cannot grow");
    ensure!(all_zero(t, p, 2 * PAGE)?, "fresh memory is not zero");
    fill(t, p, 2 * PAGE, 7)?;
    faults(t, MapErr, Read, p + 2 * PAGE)?;
    brk(p + PAGE)?;
    faults(t, MapErr, Read, p + PAGE)?;
    ensure!(read(t, p)? == 7, "contents lost");
    ensure!(brk(grown)? == grown, "cannot grow again");
    ensure!(
        all_zero(t, p + PAGE, PAGE)?,
        "old contents after growing again"
    );
    brk(old)?;
    Ok(())
}

pub fn errors(t: &Thread<'_>) -> Result<(), Failure> {
    const FAR: u64 = 1 << 62;
    let p = map_pages(t, 2, RW)?;
    unmap(t, p + PAGE, 1)?;
    let errors = t.call(|space| {
        let mmap = |at, length, flags| space.mmap(at, length, RW, flags).err();
        let munmap = |at, length| space.munmap(at, length).err();
        let mprotect = |at, length, prot| space.mprotect(at, length, prot).err();
        let madvise = |at, length, what| space.madvise(at, length, what).err();
        let fixed = ANONYMOUS | flags::FIXED;
        [
            (
                "mmap of nothing",
                mmap(0, 0, ANONYMOUS),
                Some(Errno::EINVAL),
            ),
            (
                "mmap of no type",
                mmap(0, PAGE, flags::ANONYMOUS),
                Some(Errno::EINVAL),
            ),
            (
                "mmap at p + 1",
                mmap(p + 1, PAGE, fixed),
                Some(Errno::EINVAL),
            ),
            (
                "mmap of 1 << 62",
                mmap(0, FAR, ANONYMOUS),
                Some(Errno::ENOMEM),
            ),
            (
                "mmap of all",
                mmap(0, u64::MAX, ANONYMOUS),
                Some(Errno::ENOMEM),
            ),
            (
                "mmap at 1 << 62",
                mmap(FAR, PAGE, fixed),
                Some(Errno::ENOMEM),
            ),
            ("munmap of p + 1", munmap(p + 1, PAGE), Some(Errno::EINVAL)),
            ("munmap of nothing", munmap(p, 0), Some(Errno::EINVAL)),
            ("munmap of 1 << 62", munmap(FAR, PAGE), Some(Errno::EINVAL)),
            ("munmap of a hole", munmap(p + PAGE, PAGE), None),
            (
                "mprotect of p + 1",
                mprotect(p + 1, PAGE, PROT_READ),
                Some(Errno::EINVAL),
            ),
            (
                "mprotect to 0x40",
                mprotect(p, PAGE, 0x40),
                Some(Errno::EINVAL),
            ),
            (
                "mprotect of a hole",
                mprotect(p + PAGE, PAGE, PROT_READ),
                Some(Errno::ENOMEM),
            ),
            (
                "mprotect of all",
                mprotect(p, u64::MAX - PAGE, PROT_READ),
                Some(Errno::ENOMEM),
            ),
            ("mprotect of nothing", mprotect(p, 0, PROT_READ), None),
            (
                "madvise of p + 1",
                madvise(p + 1, PAGE, advice::DONTNEED),
                Some(Errno::EINVAL),
            ),
            (
                "madvise of 0x7777",
                madvise(p, PAGE, 0x7777),
                Some(Errno::EINVAL),
            ),
            (
                "madvise with a hole",
                madvise(p, 2 * PAGE, advice::DONTNEED),
                Some(Errno::ENOMEM),
            ),
            ("madvise of nothing", madvise(p, 0, advice::DONTNEED), None),
        ]
    })?;
    for (what, is, want) in errors {
        ensure!(is == want, "{what}: {is:?}, not {want:?}");
    }
    unmap(t, p, 1)?;
    Ok(())
}

pub fn maps(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    protect(t, p + PAGE, 1, NONE)?;
    let mut lines = Vec::new();
    t.call(|space| space.maps(&mut |line| lines.push(line)))?;
    let hole = |line: &&faultless_mm::MapsEntry| line.protection.is_none();
    let found = lines
        .iter()
        .filter(hole)
        .any(|line| (line.start, line.end) == (p + PAGE, p + 2 * PAGE));
    ensure!(found, "no line \"{:x}-{:x} ---p\"", p + PAGE, p + 2 * PAGE);
    ensure!(lines.iter().any(|line| line.grows_down), "no [stack]");
    unmap(t, p, 3)?;
    Ok(())
}
