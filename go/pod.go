package redlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var reviewResource = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// userName is the user name of this process at the API server. It is empty if the server does not report it. Then a
// release needs the verb update.
func userName(ctx context.Context, client dynamic.Interface) string {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": reviewResource.GroupVersion().String(), "kind": "SelfSubjectReview",
	}}
	answer, err := client.Resource(reviewResource).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	user, _, _ := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return user
}

// The path at which the kubelet mounts the token. Tests set another path.
var serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// pod is the pod that this process runs in.
type pod struct{ namespace, name, uid string }

// ownPod is nil outside of pods, and in pods without a token.
func ownPod() *pod {
	token, err := os.ReadFile(serviceAccountToken)
	if err != nil {
		return nil
	}
	return podOf(string(token))
}

// podOf reads the pod from a token that is bound to it. The API server verifies the token when it is used.
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
