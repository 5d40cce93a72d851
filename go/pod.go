package redlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var reviewResource = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// The API server adds the UID of the token's pod to the user under this name. The chart's policies compare it with the holder.
const podExtra = "authentication.kubernetes.io/pod-uid"

// pod is a pod that this process runs in.
type pod struct{ namespace, name, uid string }

// identify returns the user name of this process at the API server, and the pod to which the token of its requests is bound.
//
// The name is empty if the server refuses to report it. Then a release needs the verb update.
func identify(ctx context.Context, client dynamic.Interface, config *rest.Config) (string, *pod, error) {
	own := podOf(sentToken(config))
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": reviewResource.GroupVersion().String(), "kind": "SelfSubjectReview",
	}}
	answer, err := client.Resource(reviewResource).Create(ctx, review, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return "", own, nil
	}
	if err != nil {
		return "", nil, err
	}
	user, _, _ := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	pods, _, _ := unstructured.NestedStringSlice(answer.Object, "status", "userInfo", "extra", podExtra)
	// With an impersonated user, with a certificate, or in another cluster that trusts the token, the requests are not the pod's.
	if own != nil && !slices.Contains(pods, own.uid) {
		own = nil
	}
	return user, own, nil
}

// sentToken is the token that the requests carry. Like client-go, it prefers the file.
func sentToken(config *rest.Config) string {
	if token, err := os.ReadFile(config.BearerTokenFile); err == nil {
		return string(token)
	}
	return config.BearerToken
}

// podOf reads the pod from a token that is bound to it, and is nil for other tokens. The API server verifies the token when it is used.
func podOf(token string) *pod {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var claims struct {
		Kubernetes struct {
			Namespace string
			Pod       struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Kubernetes.Pod.UID == "" {
		return nil
	}
	return &pod{claims.Kubernetes.Namespace, claims.Kubernetes.Pod.Name, claims.Kubernetes.Pod.UID}
}
