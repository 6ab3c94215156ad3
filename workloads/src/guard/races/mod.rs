//! One thread (the toucher) accesses a page continuously, while the check itself changes the
//! mapping. The two wait for each other at each step, so that the races also happen with one CPU.

mod toucher;

use faultless_mm::SegvCode::{AccErr, MapErr};
use faultless_mm::{PROT_READ, advice};

use super::check::{Failure, ensure};
use super::pages::{
    NONE, RW, advise, all_zero, contents, fill, map_over, map_pages, protect, read, unmap, write,
};
use crate::system::{PAGE, Thread};
use toucher::{Toucher, race};

pub fn protects(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 1, RW)?;
    let toucher = Toucher::new(p, Some(AccErr));
    race(t, &toucher, Toucher::write_words, || {
        for _ in 0..rounds {
            let faults = toucher.faults();
            // After mprotect has returned, no write may land.
            protect(t, p, 1, PROT_READ)?;
            let copy = contents(t, p, PAGE)?;
            let faulted = toucher.faults_beyond(t, faults)?;
            ensure!(faulted, "a write to the read-only page did not fault");
            let same = copy == contents(t, p, PAGE)?;
            ensure!(same, "a write landed after mprotect had returned");
            protect(t, p, 1, RW)?;
            let done = toucher.done();
            ensure!(toucher.done_beyond(t, done)?, "the writer did not go on");
        }
        Ok(())
    })?;
    ensure!(toucher.words_are_there(t)?, "a write was lost");
    unmap(t, p, 1)?;
    Ok(())
}

pub fn flip_back(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 1, RW)?;
    let toucher = Toucher::new(p, Some(AccErr));
    race(t, &toucher, Toucher::write_words_and_flip_back, || {
        for round in 0..rounds {
            let done = toucher.done();
            protect(t, p, 1, if round % 2 == 1 { PROT_READ } else { NONE })?;
            ensure!(
                toucher.done_beyond(t, done + 1)?,
                "the writer did not go on"
            );
        }
        Ok(())
    })?;
    protect(t, p, 1, RW)?;
    ensure!(toucher.words_are_there(t)?, "a write was lost");
    ensure!(toucher.faults() > 0, "no write ever faulted");
    unmap(t, p, 1)?;
    Ok(())
}

pub fn unmaps(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 1, RW)?;
    let toucher = Toucher::new(p, Some(MapErr));
    race(t, &toucher, Toucher::read_word, || {
        for _ in 0..rounds {
            let faults = toucher.faults();
            write(t, p, 7)?;
            unmap(t, p, 1)?;
            let done = toucher.done();
            let faulted = toucher.faults_beyond(t, faults)?;
            ensure!(faulted, "a read of the unmapped page did not fault");
            // Before munmap one read may have completed without being counted.
            let stopped = toucher.done() <= done + 1;
            ensure!(stopped, "a read went on after munmap had returned");
            let result = map_over(t, p, 1, RW)?;
            ensure!(result == Ok(p), "mmap: {result:?}");
            ensure!(read(t, p)? == 0, "old contents came back");
            let done = toucher.done();
            ensure!(toucher.done_beyond(t, done)?, "the reader did not go on");
        }
        Ok(())
    })?;
    unmap(t, p, 1)?;
    Ok(())
}

pub fn dontneed(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 1, RW)?;
    let toucher = Toucher::new(p, None);
    race(t, &toucher, Toucher::write_first_word, || {
        for _ in 0..rounds {
            let done = toucher.done();
            ensure!(toucher.done_beyond(t, done)?, "the writer did not go on");
            let done = toucher.done();
            let result = advise(t, p, 1, advice::DONTNEED)?;
            ensure!(result.is_ok(), "{result:?}");
            let seen = t.load(p)?;
            ensure!(
                seen == 0 || seen > done,
                "contents from before MADV_DONTNEED: {seen}, when {done} was written"
            );
        }
        Ok(())
    })?;
    unmap(t, p, 1)?;
    Ok(())
}

pub fn fixed_over(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)? + PAGE;
    let toucher = Toucher::new(p, None);
    race(t, &toucher, Toucher::read_word, || {
        for _ in 0..rounds {
            let result = map_over(t, p, 1, RW)?;
            ensure!(result == Ok(p), "mmap: {result:?}");
            ensure!(all_zero(t, p, PAGE)?, "old contents in the new mapping");
            fill(t, p, PAGE, 7)?;
            let done = toucher.done();
            ensure!(toucher.done_beyond(t, done)?, "the reader did not go on");
        }
        Ok(())
    })?;
    unmap(t, p - PAGE, 3)?;
    Ok(())
}

/// Changes neighbours in the same mapping and the same page table; the page itself must not notice.
pub fn neighbours(t: &Thread<'_>, rounds: u64) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)? + PAGE;
    let toucher = Toucher::new(p, None);
    race(t, &toucher, Toucher::refault, || {
        for _ in 0..rounds {
            protect(t, p - PAGE, 1, NONE)?;
            protect(t, p + PAGE, 1, PROT_READ)?;
            protect(t, p - PAGE, 1, RW)?;
            protect(t, p + PAGE, 1, RW)?;
            unmap(t, p + PAGE, 1)?;
            let result = map_over(t, p + PAGE, 1, RW)?;
            ensure!(result == Ok(p + PAGE), "mmap: {result:?}");
            let done = toucher.done();
            ensure!(toucher.done_beyond(t, done)?, "the writer did not go on");
        }
        Ok(())
    })?;
    unmap(t, p - PAGE, 3)?;
    Ok(())
}
