use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn second_mapping(files: &BoardFiles) -> Board {
    Board::open(files.bells.as_fd(), files.news.as_fd(), files.segment.try_clone().ok()).unwrap()
}

#[test]
fn lines_of_two_ranks_share_no_cache_line() {
    let (board, _files) = BrokersBoard::create(&[0; 3]).unwrap();
    let at = |word: &AtomicU32| word.as_ptr().addr();
    let bell = |rank| at(board.bell_of(rank, POLLING).unwrap());
    assert_eq!(bell(1) % 128, 0);
    assert_eq!(bell(2) - bell(1), 128);
    let news = |rank| at(board.news_of(rank, STATE).unwrap());
    assert_eq!(news(1) % 64, 0);
    assert_eq!(news(2) - news(1), 64);
}

#[test]
fn what_the_broker_writes_the_ranks_read() {
    let (board, files) = BrokersBoard::create(&[0; 3]).unwrap();
    let other = second_mapping(&files);
    assert_eq!(other.ranks(), 3);
    assert_eq!(other.state(2), RankState::Absent);
    board.set_state(2, RankState::Joined);
    board.set_pid(2, 77);
    board.add_mail(1);
    assert_eq!(other.state(2), RankState::Joined);
    assert_eq!(other.pid(2), 77);
    assert_eq!(other.mail(1), 1);
    assert_eq!(other.events(), 0, "nobody waits for ranks that join");
    board.set_state(2, RankState::Left);
    board.set_state(2, RankState::Left);
    assert_eq!(other.events(), 1, "no change is no event");
    other.show_openings(1, 3);
    assert_eq!((board.openings(1), board.openings(2)), (3, 0));
}

/// Opens the file of a descriptor anew, for writing.
fn reopened(fd: &OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    file.unwrap().into()
}

#[test]
fn a_rank_cannot_write_the_news_whatever_it_does_with_the_descriptor() {
    let (board, files) = BrokersBoard::create(&[0; 2]).unwrap();
    let rank = second_mapping(&files);
    let page = rustix::param::page_size();
    for fd in [&files.news, &reopened(&files.news)] {
        let mapped = Mapping::foreign(fd.as_fd(), page, Rights::ReadWrite).map(drop);
        assert_eq!(mapped, Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(fd, &[3; 64], 128), Err(Errno::PERM));
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(fd, punch, 0, page as u64), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
        let more = rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE);
        assert_eq!(more, Err(Errno::PERM), "a seal more would end the broker's mapping");
    }
    // Without "mw" the kernel lets nobody make it writable either.
    let start = format!("{:x}-", rank.news.at(0, page).addr());
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (_, mapping) = smaps.split_once(&start).unwrap();
    let flags = mapping.lines().find(|line| line.starts_with("VmFlags")).unwrap();
    assert!(flags.contains(" rd ") && !flags.contains(" mw "), "{flags}");
    board.set_state(0, RankState::Joined);
    assert_eq!(rank.state(0), RankState::Joined, "the broker still can");
}

#[test]
fn what_a_hostile_rank_writes_into_the_bells_keeps_no_late_rank_out() {
    let (board, files) = BrokersBoard::create(&[0; 2]).unwrap();
    let hostile = second_mapping(&files);
    for word in (0..bells_bytes(2)).step_by(4) {
        hostile.bells.word32(word).store(u32::MAX, Ordering::SeqCst);
    }
    board.set_state(1, RankState::Joined);
    board.add_mail(0);
    let late = second_mapping(&files);
    assert_eq!((late.ranks(), late.state(1)), (2, RankState::Joined));
    assert_eq!((late.state(0), late.mail(0), late.events()), (RankState::Absent, 1, 0));
}

#[test]
fn a_job_of_no_ranks_or_absurdly_many_is_refused() {
    assert!(matches!(BrokersBoard::create(&[0; 0]), Err(BoardError::Ranks(0))));
    assert!(matches!(BrokersBoard::create(&[0; MAX_RANKS as usize + 1]), Err(BoardError::Ranks(_))));
    assert!(BrokersBoard::create(&[0; MAX_RANKS as usize]).is_ok());
}

#[test]
fn a_rank_outside_the_job_reads_as_absent_and_cannot_be_written() {
    let (board, _files) = BrokersBoard::create(&[0; 1]).unwrap();
    board.set_state(1, RankState::Joined);
    board.set_state(u32::MAX, RankState::Joined);
    assert_eq!(board.state(1), RankState::Absent);
    assert_eq!(board.events(), 0);
    assert!(!board.ring(7));
    let slept = board.sleep(7, Sleeper::Waiting, |_| false, None, || NAP);
    assert!(!slept.found);
}

#[test]
fn a_sleeper_wakes_at_the_ring() {
    let (board, files) = BrokersBoard::create(&[0; 2]).unwrap();
    let board = Arc::new(board);
    let flag = Arc::new(AtomicBool::new(false));
    let sleeper = {
        let (board, flag) = (second_mapping(&files), flag.clone());
        std::thread::spawn(move || {
            let start = Instant::now();
            let woke = board.sleep(1, Sleeper::Waiting, |_| flag.load(Ordering::Acquire), None, || NAP);
            (woke, start.elapsed())
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    flag.store(true, Ordering::Release);
    board.ring(1);
    let (woke, took) = sleeper.join().unwrap();
    assert!(woke.found);
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_scribbled_mark_of_polling_delays_a_sleeper_but_does_not_hang_it() {
    let (board, files) = BrokersBoard::create(&[0; 1]).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    board.bell_of(0, POLLING).unwrap().store(u32::MAX, Ordering::SeqCst);
    let sleeper = {
        let (board, flag) = (second_mapping(&files), flag.clone());
        std::thread::spawn(move || board.sleep(0, Sleeper::Waiting, |_| flag.load(Ordering::Acquire), None, || NAP))
    };
    flag.store(true, Ordering::Release);
    assert!(!board.ring(0), "the mark says that somebody polls");
    assert!(sleeper.join().unwrap().found);
}

#[test]
fn an_unsealed_or_foreign_file_is_no_board() {
    let (_board, files) = BrokersBoard::create(&[0; 1]).unwrap();
    let segment = || files.segment.try_clone().ok();
    let news = |fd: &OwnedFd| Board::open(files.bells.as_fd(), fd.as_fd(), segment()).map(drop);
    let memory = || memfd::create("x", 4096).unwrap();
    let unsealed = memory();
    assert!(matches!(news(&unsealed), Err(BoardError::Memory(_))));
    assert!(matches!(Board::open(unsealed.as_fd(), files.news.as_fd(), segment()), Err(BoardError::Memory(_))));
    let writable = memory();
    memfd::finish(&writable, Writers::All).unwrap();
    assert!(matches!(news(&writable), Err(BoardError::Malformed(_))));
    let empty = memory();
    memfd::finish(&empty, Writers::Present).unwrap();
    assert!(matches!(news(&empty), Err(BoardError::Malformed("wrong magic"))));
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(news(&null.into()).is_err());
}

#[test]
fn figures_of_every_rank_are_read_where_they_were_published_and_nowhere_else() {
    for ranks in [1, 3, 64, 100] {
        let (board, files) = BrokersBoard::create(&vec![0; ranks as usize]).unwrap();
        let other = second_mapping(&files);
        let of = |rank: u32| Figures {
            at_ns: 1 + u64::from(rank),
            words: std::array::from_fn(|at| u64::from(rank) << 32 | at as u64),
        };
        assert_eq!(board.figures(0), None, "nothing is published yet");
        for rank in 0..ranks + 2 {
            other.publish(rank, &of(rank));
        }
        for rank in 0..ranks {
            assert_eq!(board.figures(rank), Some(of(rank)));
            assert!(!board.bells_of(rank).unwrap().ring(), "the bells are as they were");
        }
        assert_eq!(board.figures(ranks), None);
    }
}
