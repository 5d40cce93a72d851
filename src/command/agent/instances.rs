//! Pure: which instance of the application is served. There is one, the one that has registered last.

use std::time::Duration;

use super::book::Who;
use crate::time::Boottime;

/// The instance that is served.
#[derive(Clone, Debug)]
pub(super) struct Instances {
    /// Its id, and when it asked last.
    served: Option<(String, Boottime)>,
}

impl Instances {
    pub(super) const fn new() -> Self {
        Self { served: None }
    }

    pub(super) fn register(&mut self, id: String, now: Boottime) {
        self.served = Some((id, now));
    }

    /// The instance that is served has ended.
    pub(super) fn leave(&mut self) {
        self.served = None;
    }

    /// Who asks. The instance that is served shows by this that it lives.
    pub(super) fn asks(&mut self, id: Option<&str>, now: Boottime) -> Who {
        match (&mut self.served, id) {
            (Some((served, asked)), id) if id == Some(served) => {
                *asked = now;
                Who::Served
            }
            (_, Some(_)) => Who::Other,
            (_, None) => Who::Unnamed,
        }
    }

    /// Whether it has asked lately.
    pub(super) fn is_present(&self, now: Boottime, patience: Duration) -> bool {
        self.served.as_ref().is_some_and(|(_, asked)| now.since(*asked) < patience)
    }

    /// Until it counts as gone, if it does not ask.
    pub(super) fn gone_in(&self, now: Boottime, patience: Duration) -> Option<Duration> {
        let (_, asked) = self.served.as_ref()?;
        Some((*asked + patience).since(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn the_last_one_that_registered_is_served() {
        let mut instances = Instances::new();
        assert_eq!(instances.asks(None, at(0)), Who::Unnamed);
        assert_eq!(instances.asks(Some("a"), at(0)), Who::Other);
        instances.register("a".into(), at(1));
        assert_eq!(
            [Some("a"), Some("b"), None].map(|id| instances.asks(id, at(1))),
            [Who::Served, Who::Other, Who::Unnamed]
        );
        instances.register("b".into(), at(2));
        assert_eq!([Some("a"), Some("b")].map(|id| instances.asks(id, at(2))), [Who::Other, Who::Served]);
    }

    #[test]
    fn an_instance_that_does_not_ask_is_gone() {
        let (mut instances, patience) = (Instances::new(), Duration::from_secs(10));
        assert!(!instances.is_present(at(0), patience));
        instances.register("a".into(), at(1));
        assert!(instances.is_present(at(10), patience) && !instances.is_present(at(11), patience));
        assert_eq!(instances.gone_in(at(5), patience), Some(Duration::from_secs(6)));
        let _ = instances.asks(Some("b"), at(10));
        assert!(!instances.is_present(at(11), patience), "another one is no sign of life");
        let _ = instances.asks(Some("a"), at(12));
        assert!(instances.is_present(at(13), patience), "it is back");
    }
}
