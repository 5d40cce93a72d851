//! Pure: the Events of a quorum.

use kube::runtime::events::EventType;

use crate::redlock::RunId;

messages! {
    /// Events of a RedisQuorum.
    #[derive(displaydoc::Display)]
    pub enum QuorumEvent: means -> (&'static str, EventType);

    /// {member} can vote, as process {process}
    ///
    /// When: The rejoin delay of the process has passed.
    ///
    /// To do: nothing.
    Admitted { member: String, process: RunId } => ("Admitted", EventType::Normal),
    /// {member} runs a version whose scripts have known faults: a client of spec.clients can run its own code there. Set an image with at
    /// least {least}, or with these fixes in an older version
    ///
    /// When: A process with such a version was admitted.
    ///
    /// To do: set spec.image, or ask the owner of the external master to update it.
    VulnerableVersion { member: String, least: String } => ("KnownFaults", EventType::Warning),
    /// {member} has started and cannot vote before {until}
    ///
    /// When: The first process of a member has started.
    ///
    /// To do: nothing.
    Started { member: String, until: String } => ("Fenced", EventType::Normal),
    /// The operator observed {member} for the first time. It can vote from {until}
    ///
    /// When: The operator reached an external member for the first time.
    ///
    /// To do: nothing.
    FirstObserved { member: String, until: String } => ("Fenced", EventType::Normal),
    /// {member} is closed for good, because it leaves the quorum
    ///
    /// When: A smaller list of members is in force.
    ///
    /// To do: nothing.
    Leaves { member: String } => ("Fenced", EventType::Normal),
    /// {member} has possibly restarted and forgotten its locks. It cannot vote before {until}
    ///
    /// When: Another process of the member answers than before, or its users are not as the status records them.
    ///
    /// To do: nothing, if it was restarted on purpose. Otherwise read the log of its pod.
    Restarted { member: String, until: String } => ("Restarted", EventType::Warning),
    /// {member} has possibly restarted and forgotten its locks. Its votes do not count before {until}
    ///
    /// When: Another process of the master answers than before, or it has possibly lost its memory.
    ///
    /// To do: if it was not restarted on purpose, ask the administrator of this master.
    ExternalRestarted { member: String, until: String } => ("Restarted", EventType::Warning),
    /// {member} cannot vote, because its earlier process can still run. See its message in status.members
    ///
    /// When: A pod was replaced, and its node has not reported the end of its process.
    ///
    /// To do: bring the node of that process back. Or make sure that it is off, and annotate it as status.members describes.
    PredecessorUnconfirmed { member: String } => ("PredecessorUnconfirmed", EventType::Warning),
    /// The clock of {member} was stepped{by}. The operator fences the member and ends its process
    ///
    /// When: The clock of the member moved by more than drift explains.
    ///
    /// To do: check the time service of its node.
    ClockStepped { member: String, by: String } => ("ClockJump", EventType::Warning),
    /// The clock of {member} was stepped. Its votes do not count before {until}
    ///
    /// When: The clock of the master moved by more than drift explains.
    ///
    /// To do: let the administrator of this master check its time service.
    ExternalClockStepped { member: String, until: String } => ("ClockJump", EventType::Warning),
    /// {member} served no client for too long, so the operator deletes its pod. The next process votes when every lock of this one has
    /// expired
    ///
    /// When: A script that has written does not end, and Redis cannot end it. Or the member was busy with scripts, or had no free memory
    /// or connections, for a minute.
    ///
    /// To do: check the clients in spec.clients.
    Busy { member: String } => ("Busy", EventType::Warning),
    /// A client's script kept member {member} busy for too long, and the operator ended it
    ///
    /// When: A script ran for longer than the operator allows.
    ///
    /// To do: check the clients in spec.clients.
    ScriptKilled { member: String } => ("ScriptKilled", EventType::Warning),
    /// A client's script keeps member {member} busy, and cannot be ended because it has written. If it does not end within seconds, the
    /// operator deletes pod {pod}
    ///
    /// When: A script ran for longer than the operator allows, and has written.
    ///
    /// To do: check the clients in spec.clients.
    ScriptUnkillable { member: String, pod: String } => ("ScriptUnkillable", EventType::Warning),
    /// {member} is closed, and the operator replaces its pod
    ///
    /// When: The next member of an update is replaced.
    ///
    /// To do: nothing.
    Updating { member: String } => ("Updating", EventType::Normal),
    /// The members change from {from} to {to}. From now on a lock needs a majority of both lists
    ///
    /// When: A change of the members has begun.
    ///
    /// To do: nothing.
    MembersChanging { from: String, to: String } => ("MembersChanging", EventType::Normal),
    /// The change of the members has ended. They are {members}
    ///
    /// When: A change of the members has ended.
    ///
    /// To do: let clients outside the operator read their Secrets again.
    MembersChanged { members: String } => ("MembersChanged", EventType::Normal),
    /// {kind} {name} was changed or deleted, and the operator has restored it. Change the RedisQuorum instead
    ///
    /// When: A user or a program changed an object of the quorum.
    ///
    /// To do: edit the RedisQuorum if you want another object. To restart a member, delete its pod. If the Event repeats,
    /// `metadata.managedFields` of the object names the other program.
    Mended { kind: String, name: String } => ("Mended", EventType::Warning),
    /// Secret {secret} was gone and no replica had a copy. The operator makes new passwords and restarts the members with them, one by one
    ///
    /// When: The Secret with the passwords was deleted.
    ///
    /// To do: let clients outside the operator read their Secrets again.
    AuthLost { secret: String } => ("AuthLost", EventType::Warning),
    /// The operator gives the members new passwords. They accept both from now on
    ///
    /// When: An administrator requested new passwords.
    ///
    /// To do: nothing.
    RotationBegins => ("RotatingPasswords", EventType::Normal),
    /// Every member accepts the new passwords, and the Secrets of clients have them
    ///
    /// When: All members accept the new passwords.
    ///
    /// To do: let clients read their Secrets, then annotate with redlock-operator.io/rotate-passwords=finish.
    RotationSwitched => ("RotatingPasswords", EventType::Normal),
    /// The operator takes the old passwords from one member after the other
    ///
    /// When: An administrator annotated `finish`, or the quorum has no clients.
    ///
    /// To do: nothing.
    RotationEnds => ("RotatingPasswords", EventType::Normal),
    /// The new passwords are the only ones
    ///
    /// When: A rotation of passwords has ended.
    ///
    /// To do: nothing.
    PasswordsRotated => ("PasswordsRotated", EventType::Normal),
    /// The operator has made an authority for certificates in Secret {secret}
    ///
    /// When: The first members with TLS are created, or the Secret was deleted and the leader has no copy.
    ///
    /// To do: nothing for a new quorum. After a deletion, let clients read their Secrets again.
    AuthorityCreated { secret: String } => ("AuthorityCreated", EventType::Normal),
    /// The operator has a new authority for certificates in Secret {secret}
    ///
    /// When: Most of the life of the authority has passed.
    ///
    /// To do: let clients read their Secrets again.
    AuthorityRenewed { secret: String } => ("AuthorityRenewed", EventType::Normal),
    /// The operator has written a new certificate to Secret {secret}
    ///
    /// When: Most of the life of the certificate has passed, or a name was added.
    ///
    /// To do: nothing.
    CertificateIssued { secret: String } => ("CertificateIssued", EventType::Normal),
    /// {member} serves the newest certificate
    ///
    /// When: The kubelet has brought the new certificate into the pod.
    ///
    /// To do: nothing.
    CertificateReloaded { member: String } => ("CertificateReloaded", EventType::Normal),
    /// The RedisQuorum was deleted while locks were held. The operator no longer renews them, so they run out: {locks}
    ///
    /// When: The RedisQuorum was deleted.
    ///
    /// To do: stop their holders, or create the quorum again and let them take their locks there.
    DeletedWithLocks { locks: String } => ("DeletedWithLocks", EventType::Warning),
}
