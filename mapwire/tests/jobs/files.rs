//! Files and shared memory, whose pages may be anywhere.

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use mapwire::Error;

use crate::harness::refused;
use crate::sharing::{on_all, one_each};

const WORDS: usize = 40_000;

#[test]
fn pages_that_other_ranks_hold_are_written_to_files_and_filled_from_them() {
    on_all(2, |rank, shared| {
        let slices = one_each(rank, shared, WORDS);
        let slice = slices[0];
        // Rank 1 stores last: the pages are closed in rank 0.
        if rank.number == 1 {
            let words: Vec<u64> = (0..WORDS as u64).map(|word| word * 3).collect();
            slice.write_from(0, &words).unwrap();
        }
        shared.barrier().unwrap();
        let path = rank.path("words");
        if rank.number == 0 {
            let mut file =
                std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
            slice.write_to(0, WORDS, &mut file).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 8 * WORDS);
            for (index, word) in bytes.chunks(8).enumerate() {
                assert_eq!(word, (index as u64 * 3).to_le_bytes());
            }
        }
        shared.barrier().unwrap();
        if rank.number == 1 {
            slice.write_from(0, &vec![0; WORDS]).unwrap();
        }
        shared.barrier().unwrap();
        if rank.number == 0 {
            let mut file = std::fs::File::open(&path).unwrap();
            // It ends before the slice does.
            assert_eq!(slice.read_from(100, 2 * WORDS, &mut file).map_err(drop), Err(()));
            let part = slice.part(100, WORDS - 100).unwrap();
            assert_eq!(part.read_from(0, part.len(), &mut file).unwrap(), WORDS - 100);
            file.seek(SeekFrom::End(-80)).unwrap();
            assert_eq!(slice.read_from(0, 100, &mut file).unwrap(), 10);
        }
        shared.barrier().unwrap();
        assert_eq!(slice.get(9), (WORDS as u64 - 1) * 3);
        assert_eq!(slice.get(10), 0);
        assert_eq!(slice.get(100 + 7), 21);
        shared.barrier().unwrap();
    });
}

#[test]
fn a_file_that_fails_says_why_and_what_came_before_stays() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let count = bytes.len().min(self.0);
            self.0 -= count;
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    on_all(1, |_, shared| {
        let slice = shared.alloc::<u64>(WORDS).unwrap();
        let error = slice.write_to(0, WORDS, &mut Full(100_000)).unwrap_err();
        assert!(matches!(&error, Error::Io(why) if why.kind() == std::io::ErrorKind::StorageFull), "{error}");
        // One value and a half.
        let torn = slice.read_from(0, 2, &mut Cursor::new([7; 12])).unwrap_err();
        assert!(matches!(&torn, Error::Io(why) if why.kind() == std::io::ErrorKind::UnexpectedEof), "{torn}");
        assert_eq!(slice.get(0), u64::from_le_bytes([7; 8]));
        refused(slice.read_from(WORDS, 1, &mut Cursor::new([0; 8])), &["elements", "pass the end"]);
        assert_eq!(slice.read_from(0, 0, &mut Cursor::new([])).unwrap(), 0);
    });
}
