//! Kinds of holders, and faults.

use std::fmt;

/// The holder of the lost lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// `redlock run` that takes the lock from the members.
    Direct,
    /// `redlock run` with a claim and a Secret of `access: Read`.
    ///
    /// The clock of the API server is wrong by 30 s.
    Claim,
    /// `redlock run --agent`, whose agent takes the lock from the members.
    OfAgent,
    /// An application with an agent that takes the lock from the members.
    Asks,
    /// An application with an agent that holds the lock by a claim.
    ///
    /// The clock of the API server is wrong by 30 s.
    AsksByClaim,
}

impl Holder {
    pub(super) const fn has_agent(self) -> bool {
        matches!(self, Self::OfAgent | Self::Asks | Self::AsksByClaim)
    }

    /// Whether the holder is an application instead of a command.
    pub(super) const fn asks(self) -> bool {
        matches!(self, Self::Asks | Self::AsksByClaim)
    }

    /// Whether an operator renews the lock.
    pub(super) const fn has_claim(self) -> bool {
        matches!(self, Self::Claim | Self::AsksByClaim)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    RunKilled,
    RunStopped,
    GuardKilled,
    AgentKilled,
    /// The agent is stopped.
    AgentStopped,
    /// The members receive all requests and answer none.
    MembersSilent,
    GuardStoppedAndMembersSilent,
    MinoritySilentAndRunStopped,
    MinoritySilentAndAgentStopped,
    /// The network of the pod passes no data.
    CutOff,
    /// The members receive all requests, and their answers are lost.
    AnswersLost,
    /// The wall clock of the machine jumps by an hour, and the renewals stop.
    ClockSet,
    /// The operator stops its renewals.
    NotRenewed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) holder: Holder,
    pub(super) fault: Fault,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.holder, self.fault)
    }
}

const fn kind(holder: Holder, fault: Fault) -> Kind {
    Kind { holder, fault }
}

pub(super) const ALL: &[Kind] = &[
    kind(Holder::Direct, Fault::RunKilled),
    kind(Holder::Direct, Fault::RunStopped),
    kind(Holder::Direct, Fault::GuardKilled),
    kind(Holder::Direct, Fault::MembersSilent),
    kind(Holder::Direct, Fault::GuardStoppedAndMembersSilent),
    kind(Holder::Direct, Fault::MinoritySilentAndRunStopped),
    kind(Holder::Direct, Fault::CutOff),
    kind(Holder::Direct, Fault::AnswersLost),
    kind(Holder::Direct, Fault::ClockSet),
    kind(Holder::Claim, Fault::RunKilled),
    kind(Holder::Claim, Fault::RunStopped),
    kind(Holder::Claim, Fault::GuardKilled),
    kind(Holder::Claim, Fault::MembersSilent),
    kind(Holder::Claim, Fault::GuardStoppedAndMembersSilent),
    kind(Holder::Claim, Fault::CutOff),
    kind(Holder::Claim, Fault::AnswersLost),
    kind(Holder::Claim, Fault::ClockSet),
    kind(Holder::Claim, Fault::NotRenewed),
    kind(Holder::OfAgent, Fault::RunKilled),
    kind(Holder::OfAgent, Fault::RunStopped),
    kind(Holder::OfAgent, Fault::AgentKilled),
    kind(Holder::OfAgent, Fault::AgentStopped),
    kind(Holder::OfAgent, Fault::MembersSilent),
    kind(Holder::OfAgent, Fault::CutOff),
    kind(Holder::OfAgent, Fault::ClockSet),
    kind(Holder::Asks, Fault::AgentKilled),
    kind(Holder::Asks, Fault::AgentStopped),
    kind(Holder::Asks, Fault::MembersSilent),
    kind(Holder::Asks, Fault::MinoritySilentAndAgentStopped),
    kind(Holder::Asks, Fault::CutOff),
    kind(Holder::Asks, Fault::AnswersLost),
    kind(Holder::Asks, Fault::ClockSet),
    kind(Holder::AsksByClaim, Fault::AgentKilled),
    kind(Holder::AsksByClaim, Fault::AgentStopped),
    kind(Holder::AsksByClaim, Fault::MembersSilent),
    kind(Holder::AsksByClaim, Fault::CutOff),
    kind(Holder::AsksByClaim, Fault::AnswersLost),
    kind(Holder::AsksByClaim, Fault::ClockSet),
    kind(Holder::AsksByClaim, Fault::NotRenewed),
];
