//! Replays the fuzzer's corpus, and a few thousand mutations of it, through every decoder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aqueduct_tests::fuzz::{TARGETS, run, seeds};

/// A small deterministic generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no corpus", folder.display());
    files.iter().map(|file| fs::read(file).unwrap()).chain(seeds::of(target)).collect()
}

/// Not a test: puts the seeds where libFuzzer finds them.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_seeds() {
    for (target, _) in TARGETS {
        fs::create_dir_all(folder(target)).unwrap();
        for (number, seed) in seeds::of(target).into_iter().enumerate() {
            fs::write(folder(target).join(format!("seed-{number:02}")), seed).unwrap();
        }
    }
}

#[test]
fn every_target_replays_its_corpus() {
    for (target, _) in TARGETS {
        for seed in corpus(target) {
            run(target, &seed);
        }
    }
}

#[test]
fn every_target_survives_mutations() {
    let mut random = Random(0x61_7175_6564_7563);
    for (target, _) in TARGETS {
        let seeds = corpus(target);
        for round in 0..3000usize {
            let mut data = seeds[round % seeds.len()].clone();
            for _ in 0..=random.next() % 4 {
                mutate(&mut data, &mut random);
            }
            run(target, &data);
        }
    }
}

fn mutate(data: &mut Vec<u8>, random: &mut Random) {
    let at = if data.is_empty() { 0 } else { random.next() as usize % data.len() };
    match random.next() % 5 {
        0 => data.truncate(at),
        1 => data.insert(at, random.next() as u8),
        2 if !data.is_empty() => data[at] ^= 1 << (random.next() % 8),
        3 if !data.is_empty() => data[at] = [0, 1, 0x7f, 0x80, 0xff][random.next() as usize % 5],
        _ => {
            let tail = data.split_off(at);
            data.extend_from_slice(&[0, 0, 0, random.next() as u8]);
            data.extend(tail);
        }
    }
}
