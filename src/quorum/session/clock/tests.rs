use super::*;
use crate::redlock::Drift;
use crate::time::{TokioClock, UnixMicros};

const RULE: Rule =
    Rule { drift: Drift { ppm: 10_000, floor: Duration::from_millis(2) }, window: Duration::from_secs(30) };
const MINUTE: i64 = 60_000_000;

struct Observer {
    guard: ClockGuard,
    own: OwnClocks,
}

fn sample(millis: u64, ahead: i64) -> ClockSample {
    let sent = Boottime::new(Duration::from_millis(millis));
    let time = UnixMicros(i64::try_from(millis * 1_000).unwrap() + 1_767_225_600_000_000 + ahead);
    ClockSample { time, sent, received: sent + Duration::from_micros(300) }
}

fn run_id(member: &str) -> RunId {
    RunId::new(member)
}

impl Observer {
    fn new(members: usize) -> Self {
        Self { guard: ClockGuard::new(members, RULE), own: OwnClocks::read(&TokioClock::new()) }
    }

    /// Reads the clocks of `m0`, `m1` and so on in this order. Returns whether a task must react.
    fn reads(&self, millis: u64, aheads: &[i64], users: Users) -> bool {
        let mut news = false;
        for (index, ahead) in (0..).zip(aheads) {
            let member = format!("m{index}");
            let sample = sample(millis + index, *ahead);
            news |= self.guard.observe(&member.as_str().into(), &run_id(&member), users, sample, self.own);
        }
        news
    }

    fn steady(&self, member: &str, millis: u64, ahead: i64) -> bool {
        self.guard.steady(&run_id(member), &sample(millis, ahead))
    }

    fn stepped(&self) -> Vec<String> {
        let now = Boottime::new(Duration::from_secs(10));
        self.guard.report(now).stepped.into_iter().map(|(name, step)| format!("{name} {step}")).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reading_after_the_end_of_a_link_is_dropped() {
    let observer = Observer::new(3);
    let (member, read) = ("m1".into(), || observer.guard.report(Boottime::new(Duration::from_secs(10))).read);
    observer.reads(1_000, &[0, 0, 0], Users::Open);
    observer.guard.end(&member);
    observer.reads(2_000, &[0, 0, 0], Users::Open);
    assert_eq!(read(), 2);
    observer.guard.begin(&member);
    observer.reads(3_000, &[0, 0, 0], Users::Open);
    assert_eq!(read(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_vote_after_a_step_is_invalid_before_any_probe() {
    let observer = Observer::new(3);
    assert!(observer.steady("m0", 500, MINUTE), "nothing is known of it");
    observer.reads(1_000, &[0, 0, 0], Users::Open);
    assert!(observer.steady("m0", 1_200, 0));
    assert!(!observer.steady("m0", 1_300, MINUTE));
    assert!(!observer.steady("m0", 1_400, 0), "stepped back, and its keys are gone");
    assert!(observer.steady("m1", 1_400, 0));
    assert_eq!(observer.guard.step_of(&run_id("m0")), None, "not compared with the other members yet");
    assert!(observer.reads(1_500, &[0, 0, 0], Users::Open), "news");
    assert_eq!(observer.stepped(), ["m0 +60.000 s"]);
    // The step stays until another process answers.
    observer.reads(2_000, &[MINUTE, 0, 0], Users::Closed);
    assert_eq!(observer.stepped(), ["m0 +60.000 s"]);
    let name = "m0".into();
    observer.guard.observe(&name, &run_id("next"), Users::Closed, sample(3_000, MINUTE), observer.own);
    assert!(observer.stepped().is_empty() && observer.steady("next", 3_100, MINUTE));
}

#[tokio::test(start_paused = true)]
async fn no_clock_has_stepped_when_all_moved_together() {
    let observer = Observer::new(3);
    observer.reads(1_000, &[0, 0, 0], Users::Open);
    assert!(observer.reads(1_500, &[MINUTE, MINUTE, MINUTE], Users::Open), "news");
    assert!(observer.stepped().is_empty());
    let report = observer.guard.report(Boottime::new(Duration::from_secs(10)));
    assert_eq!(report.together.map(|step| step.to_string()).as_deref(), Some("+60.000 s"));
    assert_eq!(observer.guard.report(Boottime::new(Duration::from_secs(40))).together, None);
    // The clocks are judged from this reading on.
    observer.reads(2_000, &[MINUTE, MINUTE, MINUTE], Users::Open);
    assert!(observer.steady("m0", 2_200, MINUTE) && !observer.steady("m1", 2_200, 2 * MINUTE));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_fenced_process_is_ignored_at_its_admission() {
    let observer = Observer::new(3);
    observer.reads(1_000, &[0, 0, 0], Users::Closed);
    observer.reads(1_500, &[MINUTE, 0, 0], Users::Closed);
    observer.reads(2_000, &[MINUTE, 0, 0], Users::Closed);
    assert!(observer.stepped().is_empty());
    // It is admitted. Its baseline is the clock at the admission.
    observer.reads(2_500, &[MINUTE, 0, 0], Users::Open);
    assert!(observer.steady("m0", 2_600, MINUTE) && !observer.steady("m0", 2_600, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_does_not_delay_the_finding_of_a_step() {
    let observer = Observer::new(3);
    observer.reads(1_000, &[0, 0, 0], Users::Open);
    observer.reads(1_500, &[-MINUTE, 0], Users::Open);
    assert!(observer.stepped().is_empty(), "m2 can show the same step");
    observer.guard.lost(&"m2".into());
    observer.reads(2_000, &[-MINUTE, 0], Users::Open);
    assert_eq!(observer.stepped(), ["m0 -60.000 s"]);
}
