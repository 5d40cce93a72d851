//! The meaning of a condition's reason, the automatic reaction of the operator, and the step for the user.
//!
//! The texts are those of docs/reference/conditions.md.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::output::format::capitalized;
use redlock_api::conditions::{AcceptedReason, CommonReason, HeldReason, LockCondition};

/// The advice about a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The meaning.
    pub means: String,
    /// The automatic reaction of the operator.
    pub automatic: Option<String>,
    /// The step for the user.
    pub to_do: Option<String>,
}

/// The advice about a condition of a lock. An unknown reason has none.
#[must_use]
pub fn of_lock(condition: &Condition) -> Advice {
    let reason = condition.reason.as_str();
    let comment = match condition.type_.as_str() {
        accepted if accepted == LockCondition::Accepted.as_str() => {
            AcceptedReason::named(reason).map(AcceptedReason::comment)
        }
        _ => HeldReason::named(reason).map(HeldReason::comment),
    };
    comment.map(read).unwrap_or_default()
}

/// The advice about a condition of a quorum.
#[must_use]
pub fn of_quorum(condition: &Condition) -> Advice {
    CommonReason::named(&condition.reason).map(CommonReason::comment).map(read).unwrap_or_default()
}

/// Parses a comment. A paragraph can begin with `Automatic:` or `To do:`.
fn read(comment: &str) -> Advice {
    let mut advice = Advice::default();
    for paragraph in comment.split("\n\n") {
        let text = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(rest) = text.strip_prefix("Automatic: ") {
            advice.automatic = Some(capitalized(&rest.replace('`', "")));
        } else if let Some(rest) = text.strip_prefix("To do: ") {
            advice.to_do = Some(capitalized(&rest.replace('`', "")));
        } else if advice.means.is_empty() {
            advice.means = text;
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::condition;

    #[test]
    fn a_reason_has_a_meaning_an_automatic_reaction_and_a_step() {
        let condition = |type_: &str, reason: &str| condition(type_, "False", reason, "");
        let queued = of_lock(&condition("Held", "Queued"));
        assert_eq!(queued.means, "Another lock has the key, or is before this one in the queue.");
        assert_eq!(queued.automatic.as_deref(), Some("The lock gets its turn."));
        assert_eq!(queued.to_do.as_deref(), Some("Wait, or set a higher priority."));
        assert!(of_lock(&condition("Accepted", "TTLTooLong")).to_do.is_some_and(|text| text.contains("shorter")));
        assert!(of_quorum(&condition("Ready", "MajorityLost")).automatic.is_some());
        assert_eq!(of_lock(&condition("Held", "Dreaming")), Advice::default());
    }

    #[test]
    fn every_reason_has_a_meaning() {
        let comments = HeldReason::ALL.iter().map(|reason| reason.comment());
        let comments = comments.chain(AcceptedReason::ALL.iter().map(|reason| reason.comment()));
        let comments = comments.chain(CommonReason::ALL.iter().map(|reason| reason.comment()));
        for comment in comments {
            let advice = read(comment);
            assert!(advice.means.ends_with('.'), "{comment}");
            assert_eq!(comment.contains("To do:"), advice.to_do.is_some(), "{comment}");
        }
    }
}
