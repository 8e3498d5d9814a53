// Package controller_test runs the binary lockstep-controller against a real API
// server, under the service account and the roles of manifests/rbac. There is no
// scheduler: the tests bind pods themselves.
package lockstepcontroller_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	system         = "kube-system"
	serviceAccount = "lockstep-controller"
	// patience is how long kubectl may take.
	patience = 30 * time.Second
	// quiet is how long nothing may happen where nothing should.
	quiet = 3 * time.Second
)

// binary builds lockstep-controller once, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	root, err := localcluster.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(binaryDir, "lockstep-controller")
	build := exec.Command("go", "build", "-o", path, "./cmd/controller")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the controller: %w: %s", err, out)
	}
	return path, nil
})

var binaryDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lockstep-controller")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the binary:", err)
		os.Exit(1)
	}
	binaryDir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "removing the folder of the binary:", err)
	}
	os.Exit(code)
}

// manifest returns the path of a file or folder in manifests/.
func manifest(t *testing.T, path ...string) string {
	t.Helper()
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root, "manifests"}, path...)...)
}

// nodes are where the tests bind pods.
var nodes = []localcluster.NodePool{{Count: 4}}

// start runs a cluster with the roles of manifests/rbac and the other manifests that are
// asked for. Its API server checks permissions.
func start(t *testing.T, manifests ...string) *localcluster.Cluster {
	t.Helper()
	return localcluster.Run(t, localcluster.Options{
		Nodes:     nodes,
		Manifests: append([]string{manifest(t, "rbac")}, manifests...),
	})
}

// instance is a running lockstep-controller.
type instance struct {
	*localcluster.Process
	probes, metrics string
}

// run starts the controller and waits until it reports that it is healthy.
func run(t *testing.T, c *localcluster.Cluster, name string, args ...string) *instance {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{probes: address(t), metrics: address(t)}
	args = append([]string{
		"--kubeconfig", kubeconfig(t, c, name), "--v=4",
		"--health-probe-bind-address", i.probes, "--metrics-bind-address", i.metrics,
	}, args...)
	if i.Process, err = c.Start(name, path, args, ""); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the controller is healthy", func() error {
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, err := get(http.DefaultClient, "http://"+i.probes+path, ""); err != nil || code != http.StatusOK {
				return fmt.Errorf("getting %s: %d, %w", path, code, err)
			}
		}
		return nil
	})
	return i
}

func address(t *testing.T) string {
	t.Helper()
	port, err := localcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func get(client *http.Client, url, token string) (int, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// log returns what the controller has logged.
func (i *instance) log(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(i.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// token makes one for a service account.
func token(t *testing.T, c *localcluster.Cluster, account string) string {
	t.Helper()
	request, err := c.Clientset().CoreV1().ServiceAccounts(system).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a token for %s: %v", account, err)
	}
	return request.Status.Token
}

// kubeconfig writes one for the controller's service account.
func kubeconfig(t *testing.T, c *localcluster.Cluster, name string) string {
	t.Helper()
	admin := c.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData,
		InsecureSkipTLSVerify: admin.Insecure,
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token(t, c, serviceAccount)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(c.Dir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// namespace is a namespace of a test.
type namespace struct {
	t       *testing.T
	cluster *localcluster.Cluster
	name    string
}

func newNamespace(t *testing.T, c *localcluster.Cluster, name string) *namespace {
	t.Helper()
	_, err := c.Clientset().CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &namespace{t: t, cluster: c, name: name}
}

// member returns a pod that joins gang "train" as change says.
func member(name string, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: "lockstep-scheduler",
			Containers:    []v1.Container{{Name: "main", Image: "none"}},
		},
	}
	change(pod)
	return pod
}

func byLabel(pod *v1.Pod) { pod.Labels["scheduling.x-k8s.io/pod-group"] = "train" }

// create creates members 0 to n-1.
func (n *namespace) create(count int, change func(*v1.Pod)) {
	n.t.Helper()
	for i := range count {
		n.createPod(member(fmt.Sprintf("train-%d", i), change))
	}
}

func (n *namespace) createPod(pod *v1.Pod) {
	n.t.Helper()
	if _, err := n.cluster.Clientset().CoreV1().Pods(n.name).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatalf("creating pod %s: %v", pod.Name, err)
	}
}

// bind binds the members named, eight at a time.
func (n *namespace) bind(names ...string) {
	n.t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, name := range names {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			binding := &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.name},
				Target:     v1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%d", i%4)},
			}
			if err := n.cluster.Clientset().CoreV1().Pods(n.name).Bind(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
				n.t.Errorf("binding pod %s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// names returns the names of members 0 to n-1.
func names(count int) []string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf("train-%d", i)
	}
	return list
}

// phase sets the phase of a pod, as a kubelet does.
func (n *namespace) phase(name string, phase v1.PodPhase) {
	n.t.Helper()
	pods := n.cluster.Clientset().CoreV1().Pods(n.name)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := pods.Get(n.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase = phase
		_, err = pods.UpdateStatus(n.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		n.t.Fatalf("setting the phase of pod %s: %v", name, err)
	}
}

func (n *namespace) kubectl(args ...string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if _, err := n.cluster.Kubectl(ctx, append([]string{"--namespace", n.name}, args...)...); err != nil {
		n.t.Fatal(err)
	}
}

func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q is not in:\n%s", part, text)
	}
	return nil
}
