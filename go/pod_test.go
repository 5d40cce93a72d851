package redlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// boundToken is a service account token of the pod a-1 in this namespace.
func boundToken(namespace string) string {
	payload := fmt.Sprintf(`{"kubernetes.io": {"namespace": %q, "pod": {"name": "a-1", "uid": "u-1"}}}`, namespace)
	return "x." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".y"
}

func TestAPodIsReadFromItsToken(t *testing.T) {
	own := podOf(boundToken("shop") + "\n")
	if own == nil || *own != (pod{"shop", "a-1", "u-1"}) {
		t.Fatalf("%+v", own)
	}
	for _, token := range []string{"", "a.b", "a.b.c", "a." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + ".c"} {
		if podOf(token) != nil {
			t.Errorf("%q", token)
		}
	}
}

// made is the claim that a process with this configuration creates. The server's answer about the user names these pods, or is an error.
func made(t *testing.T, config rest.Config, pods []string) *unstructured.Unstructured {
	t.Helper()
	claim := &unstructured.Unstructured{}
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		isReview := strings.HasSuffix(request.URL.Path, "/selfsubjectreviews")
		switch {
		case isReview && pods == nil:
			response.WriteHeader(http.StatusForbidden)
		case isReview:
			_ = json.NewEncoder(response).Encode(map[string]any{
				"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
				"status": map[string]any{"userInfo": map[string]any{
					"username": "alice", "extra": map[string]any{"authentication.kubernetes.io/pod-uid": pods},
				}},
			})
		case request.Method == http.MethodPost:
			text, _ := io.ReadAll(request.Body)
			if err := claim.UnmarshalJSON(text); err != nil {
				t.Error(err)
			}
			_, _ = response.Write(text)
		default:
			_, _ = io.WriteString(response, `{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "items": []}`)
		}
	}))
	t.Cleanup(server.Close)
	config.Host = server.URL
	lock, err := New(context.Background(), &config, Options{Namespace: "shop", Key: "reindex"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return claim
}

func TestALockIsNotMadeWithoutTheNameOfItsUser(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(request.URL.Path, "/selfsubjectreviews") {
			response.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(response, `{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "items": []}`)
	}))
	t.Cleanup(server.Close)
	lock, err := New(context.Background(), &rest.Config{Host: server.URL}, Options{Namespace: "shop", Key: "reindex"})
	if err == nil || !strings.Contains(err.Error(), "has not reported the user") {
		t.Errorf("%+v, %v", lock, err)
	}
}

func TestAClaimNamesThePodOfTheRequests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(boundToken("shop")), 0o600); err != nil {
		t.Fatal(err)
	}
	own := []string{"u-1"}
	for name, example := range map[string]struct {
		config   rest.Config
		pods     []string
		namesPod bool
	}{
		"a pod":                   {rest.Config{BearerTokenFile: file}, own, true},
		"its file before a token": {rest.Config{BearerTokenFile: file, BearerToken: "x"}, own, true},
		"its token alone":         {rest.Config{BearerToken: boundToken("shop")}, own, true},
		"no answer":               {rest.Config{BearerTokenFile: file}, nil, true},
		"no token":                {rest.Config{}, []string{}, false},
		"another user's token":    {rest.Config{BearerToken: "x"}, []string{}, false},
		"an impersonated user": {
			rest.Config{BearerTokenFile: file, Impersonate: rest.ImpersonationConfig{UserName: "alice"}}, []string{}, false,
		},
		"a pod of another cluster":   {rest.Config{BearerTokenFile: file}, []string{}, false},
		"a pod of another namespace": {rest.Config{BearerToken: boundToken("other")}, own, false},
	} {
		claim := made(t, example.config, example.pods)
		of, _, _ := unstructured.NestedMap(claim.Object, "spec", "claim")
		owners := claim.GetOwnerReferences()
		names := of["podUID"] == "u-1" && len(owners) == 1 && owners[0].UID == "u-1"
		isFree := of["identity"] != nil && len(owners) == 0
		if names != example.namesPod || isFree == example.namesPod {
			t.Errorf("%s: %v, owned by %v", name, of, owners)
		}
	}
}
