package redlock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	group = "redlock-operator.io"
	// A holder releases its lock with this annotation. The value is the token of the hold.
	releaseAnnotation = group + "/release"
	// The identity of the process that made a claim.
	identityAnnotation = group + "/go-identity"
	// The user that created a claim. The chart's admission policy allows this user to release it.
	createdByAnnotation = group + "/created-by"
	// This label finds all claims of this package on a key.
	keyLabel = group + "/go-key"
	// A claim of a dead process leaves the queue after this time. A living process makes another claim.
	waitTimeout = "10m"
	// A finished claim keeps its end in its status for this time.
	ttlAfterFinished = "10m"
	// The text for a missing condition.
	silence = "the operator has not answered"
	// The longest part of a name before the hyphen and eight random characters.
	longestPrefix = 54
)

var (
	claimResource = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "distributedlocks"}
	leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// claim has the fields of a DistributedLock that this package reads.
type claim struct {
	Metadata struct {
		Name, UID, ResourceVersion string
		DeletionTimestamp          *string
		Annotations                map[string]string
	}
	Spec struct {
		Claim struct{ PodUID, Container string }
	}
	Status struct {
		Holder *struct{ Identity, Nonce, PodUID string }
		Ending *struct{ Reason, Message string }

		FencingToken int64
		ValidUntil   string
		Conditions   []struct{ Type, Status, Reason, Message string }
	}
}

func claimOf(object *unstructured.Unstructured) (*claim, error) {
	read := &claim{}
	text, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, read)
	}
	if err != nil {
		return nil, fmt.Errorf("DistributedLock %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return read, nil
}

// published is a hold from a status.
type published struct {
	nonce      string
	token      int64
	validUntil time.Time
}

// claimState is the state of a claim for the process that made it.
type claimState struct {
	held *published
	// The reason why the claim will not hold the lock, or no longer holds it. Empty while it waits.
	ended string
	// The hold has ended, but its validity has not expired. After its expiry the claim is finished, or queues again.
	runsOut bool
	// The reason why the claim does not queue: the operator refuses it, finds no pod for it, or has not answered.
	trouble string
}

// timedOut is true if the claim has left the queue after waitTimeout, like the claim of a dead process.
func (s claimState) timedOut() bool { return strings.HasPrefix(s.ended, "False, WaitTimeout:") }

// read evaluates a claim. `identity` or `podUID` belongs to its holder, and `nonce` to the current hold.
func (c *claim) read(identity, podUID, nonce string) claimState {
	status := &c.Status
	held, finished := c.condition("Held"), c.condition("Finished")
	switch {
	case c.Metadata.DeletionTimestamp != nil:
		return claimState{ended: "it is being deleted"}
	case status.Ending != nil:
		return claimState{ended: fmt.Sprintf("%s (%s)", status.Ending.Message, status.Ending.Reason), runsOut: true}
	case strings.HasPrefix(finished, "True"), nonce != "" && strings.HasPrefix(held, "False"):
		return claimState{ended: held}
	case !strings.HasPrefix(held, "True") || status.Holder == nil || status.FencingToken == 0:
		return claimState{trouble: c.trouble()}
	case podUID == "" && status.Holder.Identity != identity, podUID != "" && status.Holder.PodUID != podUID:
		return claimState{ended: "it is held by " + status.Holder.Identity}
	case nonce != "" && status.Holder.Nonce != nonce:
		return claimState{ended: "it has another hold now"}
	}
	validUntil, err := time.Parse(time.RFC3339, status.ValidUntil)
	if err != nil {
		return claimState{} // it has no validity yet
	}
	return claimState{held: &published{status.Holder.Nonce, status.FencingToken, validUntil}}
}

func (c *claim) trouble() string {
	if accepted := c.condition("Accepted"); strings.HasPrefix(accepted, "False") {
		return accepted
	}
	held := c.condition("Held")
	if strings.HasPrefix(held, "True,") {
		return ""
	}
	for _, turn := range []string{"Queued", "HeldByOther", "LockDelay"} {
		if strings.HasPrefix(held, "False, "+turn+":") {
			return ""
		}
	}
	return held
}

// condition is the status, the reason and the message of a condition.
func (c *claim) condition(kind string) string {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return fmt.Sprintf("%s, %s: %s", condition.Status, condition.Reason, condition.Message)
		}
	}
	return silence
}

// label is the value of keyLabel on all claims on this key.
func label(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// namePrefix makes a key the beginning of an object's name.
func namePrefix(key string) string {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	text := strings.Map(plain, strings.ToLower(key))
	text = strings.Trim(text[:min(len(text), longestPrefix)], "-")
	if text == "" {
		return "lock-"
	}
	return text + "-"
}

// newClaim is the claim of this process. The pod of its token holds the lock. Without such a pod the identity does.
func newClaim(options *Options, identity, user string, own *pod) *unstructured.Unstructured {
	holder := map[string]any{"heartbeat": milliseconds(options.TTL / 2)}
	metadata := map[string]any{
		// The name is chosen here, so that a creation without an answer can be repeated.
		"name":        namePrefix(options.Key) + string(uuid.NewUUID())[:8],
		"labels":      map[string]any{keyLabel: label(options.Key)},
		"annotations": map[string]any{identityAnnotation: identity, createdByAnnotation: user},
	}
	if own == nil {
		holder["identity"] = identity
	} else {
		holder["podName"], holder["podUID"] = own.name, own.uid
		if options.Container != "" {
			holder["container"] = options.Container
		}
		metadata["ownerReferences"] = []any{reference("v1", "Pod", own.name, own.uid)}
	}
	spec := map[string]any{
		"key": options.Key, "ttl": milliseconds(options.TTL), "claim": holder, "waitTimeout": waitTimeout,
		"ttlAfterFinished": ttlAfterFinished,
	}
	if options.Quorum != "" {
		quorum := map[string]any{"name": options.Quorum}
		if namespace, name, ok := strings.Cut(options.Quorum, "/"); ok {
			quorum = map[string]any{"namespace": namespace, "name": name}
		}
		spec["quorumRef"] = quorum
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "DistributedLock", "metadata": metadata, "spec": spec,
	}}
}

// newLease is the heartbeat of a claim. The operator detects its changes, and reads no time from it.
func newLease(owner *claim, ttl time.Duration, now time.Time) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{
			"name":            owner.Metadata.Name,
			"ownerReferences": []any{reference(group+"/v1alpha1", "DistributedLock", owner.Metadata.Name, owner.Metadata.UID)},
		},
		"spec": map[string]any{
			"holderIdentity": owner.Metadata.Name, "leaseDurationSeconds": int64(ttl / time.Second),
			"renewTime": now.UTC().Format("2006-01-02T15:04:05.000000Z"),
		},
	}}
}

func reference(apiVersion, kind, name, uid string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": uid}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%dms", d.Milliseconds())
}
