//! Pure: which of several installations of the operator looks after a quorum.
//!
//! Two leaders on one quorum would raise their epochs on its members above each other, each beginning a new term whenever the other has.
//! So an installation writes its name into the status of a quorum before it does anything for it, and others leave that quorum alone.

use std::time::Duration;

/// A Lease that is gone for so long has no replica that would renew it.
/// A Lease that was only deleted comes again within seconds.
const ABSENT: Duration = Duration::from_secs(60);
/// A Lease that stands still for so long belongs to an installation without replicas.
const UNCHANGED: Duration = Duration::from_secs(600);

/// What is seen of the Lease of the installation that the status names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSight {
    /// No answer.
    Unknown,
    /// This installation may not read it.
    Forbidden,
    /// Not there, for so long on this replica's own clock.
    Absent(Duration),
    /// Not renewed, for so long on this replica's own clock.
    Unchanged(Duration),
}

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// This installation, `<namespace>/<Lease name>`.
    pub me: &'a str,
    /// Whether the quorum's namespace is one of those that this installation looks after.
    pub in_scope: bool,
    /// The installation in the quorum's status.
    pub recorded: Option<&'a str>,
    /// The installation that a person has named by annotation.
    pub annotated: Option<&'a str>,
    /// Of the recorded one.
    pub lease: LeaseSight,
}

/// What to do about a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Look after it.
    Serve,
    /// Write this installation into its status, and then look after it.
    Take,
    /// It was this installation's, and its namespace is not any more: take the name off.
    Release,
    /// Leave it alone.
    Leave,
}

/// Decides.
pub fn decide(look: &Look<'_>) -> Service {
    match look.recorded {
        Some(recorded) if recorded == look.me => {
            if look.in_scope {
                Service::Serve
            } else {
                Service::Release
            }
        }
        _ if !look.in_scope => Service::Leave,
        None => Service::Take,
        Some(_) if look.annotated == Some(look.me) => Service::Take,
        Some(_) => match look.lease {
            LeaseSight::Absent(so_long) if so_long >= ABSENT => Service::Take,
            LeaseSight::Unchanged(so_long) if so_long >= UNCHANGED => Service::Take,
            _ => Service::Leave,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "redlock-system/redlock-operator";
    const OTHER: &str = "team-a/redlock-operator";

    fn look(recorded: Option<&'static str>) -> Look<'static> {
        Look { me: ME, in_scope: true, recorded, annotated: None, lease: LeaseSight::Unknown }
    }

    #[test]
    fn a_quorum_is_served_by_the_installation_that_its_status_names() {
        assert_eq!(decide(&look(Some(ME))), Service::Serve);
        assert_eq!(decide(&look(None)), Service::Take, "a new one");
        assert_eq!(decide(&look(Some(OTHER))), Service::Leave);
    }

    #[test]
    fn what_is_out_of_scope_is_left_alone_and_given_up() {
        for (recorded, expected) in
            [(Some(ME), Service::Release), (None, Service::Leave), (Some(OTHER), Service::Leave)]
        {
            let gone = LeaseSight::Absent(Duration::MAX);
            let look = Look { in_scope: false, annotated: Some(ME), lease: gone, ..look(recorded) };
            assert_eq!(decide(&look), expected, "{recorded:?}");
        }
    }

    #[test]
    fn a_quorum_is_taken_over_only_when_its_installation_is_gone_or_a_person_says_so() {
        let seconds = Duration::from_secs;
        for (lease, expected) in [
            (LeaseSight::Unknown, Service::Leave),
            (LeaseSight::Forbidden, Service::Leave),
            // Deleting a Lease moves no quorum: its leader makes it again.
            (LeaseSight::Absent(seconds(59)), Service::Leave),
            (LeaseSight::Absent(seconds(60)), Service::Take),
            (LeaseSight::Unchanged(seconds(599)), Service::Leave),
            (LeaseSight::Unchanged(seconds(600)), Service::Take),
        ] {
            assert_eq!(decide(&Look { lease, ..look(Some(OTHER)) }), expected, "{lease:?}");
        }
        let word = |annotated| Look { annotated, lease: LeaseSight::Forbidden, ..look(Some(OTHER)) };
        assert_eq!(decide(&word(Some(ME))), Service::Take);
        assert_eq!(decide(&word(Some(OTHER))), Service::Leave);
        // The one of before does not take it back: it sees the name of the other.
        let before = Look { me: OTHER, annotated: Some(ME), ..look(Some(ME)) };
        assert_eq!(decide(&before), Service::Leave);
    }
}
