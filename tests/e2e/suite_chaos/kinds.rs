//! Kinds of faults, and how the nemesis injects them.

/// Defines the kinds with their names in the report.
macro_rules! kinds {
    ($($kind:ident $name:literal,)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Kind {
            $($kind),+
        }

        impl Kind {
            /// The kinds for the operator's quorum.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            /// The name in the report.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),+
                }
            }
        }
    };
}

kinds! {
    KillMember "a member killed",
    KillTwoMembers "two members killed",
    KillAllMembers "all members killed",
    FreezeMember "a member frozen",
    FreezeTwoMembers "two members frozen",
    DeletePod "a member's pod deleted",
    ForceDeletePod "a member's pod deleted by force",
    CutMember "a member cut off",
    DeafMember "requests to a member dropped",
    MuteMember "answers of a member dropped",
    HalfOpenMember "connections to a member open, and dead",
    CutNode "a node cut off",
    DeafNode "all that is sent to a node dropped",
    StepClockAhead "a member's clock stepped ahead",
    StepClockBack "a member's clock stepped back",
    BusyScript "a script that does not end",
    Roll "the quorum rolled",
    ChangeMaxTtl "maxTTL changed",
    ChangeMembers "members changed, from three to five or back",
    KillLeader "the leading operator killed",
    KillFollower "another operator killed",
    KillOperators "all operators killed",
    FreezeLeader "the leading operator frozen",
    DeleteOperatorPod "an operator's pod deleted by force",
    CutLeaderFromApiServer "the leading operator cut off from the API server",
    CutLeaderFromMembers "the leading operator cut off from all members",
    KillApiServer "the API server killed",
    FreezeApiServer "the API server frozen",
    DeafApiServer "requests to the API server dropped",
    RestartKubelet "a kubelet restarted",
    KillElected "the elected pod killed",
    KillClient "a client outside killed",
    FreezeClient "a client outside frozen",
}

impl Kind {
    /// The kinds for plain Redis servers, without an operator and claims.
    pub(crate) const PLAIN: &[Self] = &[
        Self::KillMember,
        Self::KillTwoMembers,
        Self::KillAllMembers,
        Self::FreezeMember,
        Self::CutMember,
        Self::DeafMember,
        Self::MuteMember,
        Self::HalfOpenMember,
        Self::KillClient,
        Self::FreezeClient,
    ];
}
