//! Progress without a socket: every tick is a call.

use std::future::poll_fn;

use futures_util::FutureExt as _;

use super::*;

/// Its tick is a second.
const TIMEOUTS: Timeouts = Timeouts {
    read: Duration::from_secs(4),
    request: Duration::from_secs(12),
    write: Duration::from_secs(6),
    idle: Duration::from_secs(8),
    bytes_per_second: 1_000,
};

fn connection() -> (Arc<Progress>, StallDetector) {
    let progress = Arc::new(Progress::default());
    (progress.clone(), StallDetector::new(progress, TIMEOUTS))
}

/// Returns the number of looks that find a reason; fails if a hundred find none.
fn looks_until_found(detector: &mut StallDetector) -> (usize, Cut) {
    (1..=100)
        .find_map(|n| detector.look().map(|cut| (n, cut)))
        .unwrap()
}

fn is_kept(detector: &mut StallDetector) -> bool {
    (0..100).all(|_| detector.look().is_none())
}

/// Asks an answer for its next part.
fn part(answer: &mut Answer) -> Poll<Option<Piece>> {
    let frame = poll_fn(|cx| Pin::new(&mut *answer).poll_frame(cx)).now_or_never();
    match frame {
        Some(Some(frame)) => Poll::Ready(frame.unwrap().into_data().ok()),
        Some(None) => Poll::Ready(None),
        None => Poll::Pending,
    }
}

fn answer(progress: &Arc<Progress>, bytes: usize) -> Answer {
    let turn = Turn::begin(progress.clone());
    Answer::new(Body::from(vec![7; bytes]), turn)
}

fn piece(answer: &mut Answer) -> Piece {
    match part(answer) {
        Poll::Ready(Some(piece)) => piece,
        Poll::Ready(None) | Poll::Pending => panic!("there is no part"),
    }
}

#[test]
fn each_phase_has_its_own_timeout() {
    // One look notices the change, then one per second of its time.
    for (phase, looks, cut) in [
        (Phase::Open, 9, Cut::Idle),
        (Phase::Head, 5, Cut::Head),
        (Phase::Answer, 13, Cut::Answer),
    ] {
        let (progress, mut detector) = connection();
        progress.enter(phase);
        assert_eq!(looks_until_found(&mut detector), (looks, cut));
    }
}

#[test]
fn a_connection_that_never_says_anything_is_let_go() {
    let (_, mut detector) = connection();
    assert_eq!(looks_until_found(&mut detector), (4, Cut::Head));
}

#[test]
fn trickling_headers_does_not_buy_time() {
    let (progress, mut detector) = connection();
    progress.read();
    let found = (0..10).any(|_| {
        progress.read();
        detector.look() == Some(Cut::Head)
    });
    assert!(found);
}

#[test]
fn requests_begin_their_times_anew() {
    let (progress, mut detector) = connection();
    for _ in 0..50 {
        progress.read();
        drop(Turn::begin(progress.clone()));
        progress.enter(Phase::Open);
        assert_eq!(detector.look(), None);
    }
    assert_eq!(looks_until_found(&mut detector), (8, Cut::Idle));
}

#[test]
fn an_answer_that_nobody_takes_is_cut_wherever_it_waits() {
    let grace = (6, Cut::Pace);
    // The protocol has no room and does not ask for it.
    let (progress, mut detector) = connection();
    let mut unasked = answer(&progress, 10_000);
    assert_eq!(looks_until_found(&mut detector), grace);
    // The protocol has it and cannot send it.
    let handed = piece(&mut unasked);
    drop(unasked);
    detector.patience = Patience::new(TIMEOUTS.sending());
    assert_eq!(looks_until_found(&mut detector), grace);
    drop(handed);
    assert!(progress.idle_since().is_some());
    assert_eq!(looks_until_found(&mut detector).1, Cut::Idle);
}

#[test]
fn other_requests_buy_an_answer_that_is_not_taken_no_time() {
    let (progress, mut detector) = connection();
    let mut slow = answer(&progress, 1_000_000);
    let mut piece = piece(&mut slow);
    let found = (0..30).find_map(|_| {
        drop(Turn::begin(progress.clone()));
        piece.advance(10);
        detector.look()
    });
    assert_eq!(found, Some(Cut::Pace));
}

#[test]
fn who_takes_an_answer_at_a_pace_is_kept_also_in_bursts() {
    for (bytes, every) in [(1_000, 1), (5_000, 4)] {
        let (progress, mut detector) = connection();
        let mut slow = answer(&progress, 1_000_000);
        let mut piece = piece(&mut slow);
        drop(slow);
        for second in 1..=100 {
            if second % every == 0 {
                piece.advance(bytes);
            }
            assert_eq!(detector.look(), None, "{bytes} every {every} s");
        }
        assert!(progress.idle_since().is_none());
    }
}

#[tokio::test]
async fn a_stream_that_has_nothing_to_say_is_kept() {
    let (progress, mut detector) = connection();
    let turn = Turn::begin(progress.clone());
    assert!(is_kept(&mut detector), "the server works");
    let silent = futures_util::stream::pending::<Result<Bytes, axum::Error>>();
    let mut stream = Answer::new(Body::from_stream(silent), turn);
    assert!(part(&mut stream).is_pending());
    assert!(is_kept(&mut detector));
    assert!(progress.idle_since().is_none());
    let mut other = answer(&progress, 10);
    assert_eq!(looks_until_found(&mut detector).1, Cut::Pace);
    piece(&mut other).advance(10);
    drop(other);
    assert!(is_kept(&mut detector));
    drop(stream);
    assert_eq!(progress.working.load(Ordering::Relaxed), 0);
    assert_eq!(looks_until_found(&mut detector).1, Cut::Idle);
}

#[test]
fn a_long_answer_does_not_use_up_the_time_between_requests() {
    let (progress, mut detector) = connection();
    let mut long = answer(&progress, 100_000);
    let mut piece = piece(&mut long);
    drop(long);
    for _ in 0..50 {
        piece.advance(2_000);
        assert_eq!(detector.look(), None);
    }
    assert!(progress.idle_since().is_some());
    assert_eq!(looks_until_found(&mut detector), (8, Cut::Idle));
}
