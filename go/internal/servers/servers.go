// Package servers runs a real API server for tests, with the project's kinds, and a simple operator.
package servers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Program names the environment variable with the path of kube-apiserver. dev/go.sh sets it. etcd is on the PATH.
const Program = "REDLOCK_KUBE_APISERVER"

// Namespace is the namespace of the tests' locks.
const Namespace = "shop"

// Servers are an etcd and an API server on loopback ports.
type Servers struct {
	Config     *rest.Config
	Kubeconfig string
	APIServer  *os.Process
	folder     string
	commands   []*exec.Cmd
}

// Start starts both servers, and creates the CRDs and the namespace. `crds` is the project's folder of that name.
func Start(crds string) (*Servers, error) {
	folder, err := os.MkdirTemp("", "redlock-go-")
	if err != nil {
		return nil, err
	}
	servers := &Servers{folder: folder, Kubeconfig: filepath.Join(folder, "kubeconfig")}
	if err := servers.start(crds); err != nil {
		log, _ := os.ReadFile(filepath.Join(folder, "kube-apiserver.log"))
		servers.Stop()
		return nil, fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2000):])
	}
	return servers, nil
}

func (s *Servers) start(crds string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	client, peer, secure := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1], ports[2]
	_, err = s.run("etcd", "etcd", "--data-dir", filepath.Join(s.folder, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
	if err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	accounts, tokens := filepath.Join(s.folder, "accounts.key"), filepath.Join(s.folder, "tokens")
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := os.WriteFile(accounts, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(tokens, []byte("administrator,administrator,1,system:masters\n"), 0o600); err != nil {
		return err
	}
	server, err := s.run("kube-apiserver", os.Getenv(Program), "--etcd-servers="+client, "--secure-port="+secure, "--bind-address=127.0.0.1",
		"--cert-dir="+s.folder, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts,
		"--service-account-signing-key-file="+accounts, "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	s.APIServer = server.Process
	s.Config = &rest.Config{
		Host: "https://127.0.0.1:" + secure, BearerToken: "administrator", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS: 500, Burst: 500,
	}
	if err := s.writeKubeconfig(); err != nil {
		return err
	}
	return s.install(crds)
}

// run starts a program. Its output goes to a file of its name.
func (s *Servers) run(name, program string, arguments ...string) (*exec.Cmd, error) {
	output, err := os.Create(filepath.Join(s.folder, name+".log"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		return nil, err
	}
	s.commands = append(s.commands, command)
	return command, nil
}

// freePorts returns free ports of 127.0.0.1 below the ephemeral range. The kernel gives an ephemeral port to an outgoing
// connection, also before the server listens.
func freePorts(count int) ([]string, error) {
	var ports []string
	for _, offset := range mathrand.Perm(10_000) {
		port := strconv.Itoa(20_000 + offset)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		listener.Close()
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports from 20000 to 29999")
}

func (s *Servers) writeKubeconfig() error {
	config := clientcmdapi.NewConfig()
	config.Clusters["alone"] = &clientcmdapi.Cluster{Server: s.Config.Host, InsecureSkipTLSVerify: true}
	config.AuthInfos["administrator"] = &clientcmdapi.AuthInfo{Token: s.Config.BearerToken}
	config.Contexts["alone"] = &clientcmdapi.Context{Cluster: "alone", AuthInfo: "administrator"}
	config.CurrentContext = "alone"
	return clientcmd.WriteToFile(*config, s.Kubeconfig)
}

// install creates the CRDs and the namespace, as soon as the server answers.
func (s *Servers) install(crds string) error {
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	kinds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s: %w", crds, err)
	}
	for _, file := range files {
		if err := createAll(ctx, client.Resource(kinds), file); err != nil {
			return err
		}
	}
	namespace := object("v1", "Namespace", map[string]any{"name": Namespace})
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if err := create(ctx, namespaces, namespace); err != nil {
		return err
	}
	return until(ctx, func() error {
		_, err := client.Resource(locks).Namespace(Namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

func createAll(ctx context.Context, kinds dynamic.ResourceInterface, file string) error {
	text, err := os.Open(file)
	if err != nil {
		return err
	}
	defer text.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		kind := &unstructured.Unstructured{}
		if err := decoder.Decode(kind); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if len(kind.Object) > 0 {
			if err := create(ctx, kinds, kind); err != nil {
				return err
			}
		}
	}
}

func create(ctx context.Context, to dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	return until(ctx, func() error {
		_, err := to.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func object(apiVersion, kind string, metadata map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}}
}

// Stop ends both servers and removes their files.
func (s *Servers) Stop() {
	for _, command := range s.commands {
		_ = command.Process.Kill()
	}
	for _, command := range s.commands {
		_ = command.Wait()
	}
	_ = os.RemoveAll(s.folder)
}
