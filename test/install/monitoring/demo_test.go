package monitoring

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// demo is the cluster of make demo, four racks of four nodes with eight GPUs each, and all three binaries at work in
// it.
type demo struct {
	*testing.T
	*localcluster.Cluster
	root string
	// targets are where the jobs of scrape.yaml find their metrics.
	targets map[string]string
}

func start(t *testing.T) *demo {
	t.Helper()
	root, err := localcluster.Root()
	if err == nil {
		err = localcluster.BuildCommands(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{T: t, root: root, targets: map[string]string{}}
	d.Cluster = localcluster.Run(t, localcluster.Options{
		Manifests: append(localcluster.Roles(root), filepath.Join(root, "manifests", "crds")),
		Nodes: []localcluster.NodePool{{
			Count: 16, LabelsFor: func(i int) map[string]string { return map[string]string{localcluster.LabelRack: fmt.Sprint("r", i/4)} },
			Allocatable: v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("8")},
		}},
	})
	scheduler := d.account("lockstep-scheduler")
	config := d.config(scheduler)
	d.run("lockstep-scheduler", "--config="+config, "--bind-address=127.0.0.1", "--secure-port="+d.port("lockstep-scheduler"),
		"--authentication-kubeconfig="+scheduler, "--authorization-kubeconfig="+scheduler)
	d.run("lockstep-controller", "--kubeconfig="+d.account("lockstep-controller"), "--scheduler-config="+config, "--leader-elect", "--leader-elect-namespace=kube-system",
		"--health-probe-bind-address=0", "--metrics-bind-address=127.0.0.1:"+d.port("lockstep-controller"))
	d.run("lockstep-descheduler", "--kubeconfig="+d.account("lockstep-descheduler"), "--policy-config-file="+d.policy(), "--descheduling-interval=2s",
		"--bind-address=127.0.0.1", "--secure-port="+d.port("lockstep-descheduler"))
	return d
}

// port returns a free port, where a job finds its metrics.
func (d *demo) port(job string) string {
	d.Helper()
	port, err := localcluster.FreePort()
	if err != nil {
		d.Fatal(err)
	}
	d.targets[job] = fmt.Sprint("127.0.0.1:", port)
	return fmt.Sprint(port)
}

func (d *demo) account(name string) string {
	d.Helper()
	path, err := d.KubeconfigFor(name)
	if err != nil {
		d.Fatal(err)
	}
	return path
}

func (d *demo) run(name string, args ...string) {
	d.Helper()
	if _, err := d.Start(name, filepath.Join(d.root, "bin", name), args, ""); err != nil {
		d.Fatal(err)
	}
}

// edited returns a YAML file of the repository with a change, in the cluster's folder.
func (d *demo) edited(file string, change func(map[string]any)) string {
	d.Helper()
	data, err := os.ReadFile(filepath.Join(d.root, file))
	if err != nil {
		d.Fatal(err)
	}
	content := map[string]any{}
	if err := yaml.Unmarshal(data, &content); err != nil {
		d.Fatal(err)
	}
	change(content)
	if data, err = yaml.Marshal(content); err != nil {
		d.Fatal(err)
	}
	path := filepath.Join(d.Dir(), filepath.Base(file))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.Fatal(err)
	}
	return path
}

// config returns the configuration of the demo with FairShare, and with the lease that the role of the scheduler
// allows.
func (d *demo) config(kubeconfig string) string {
	return d.edited("hack/demo/8-fairshare.yaml", func(c map[string]any) {
		c["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig
		c["leaderElection"] = map[string]any{"leaderElect": true, "resourceName": "lockstep-scheduler", "resourceNamespace": "kube-system"}
	})
}

// policy returns the policy of the demo, with plans that do not wait for approval.
func (d *demo) policy() string {
	return d.edited("hack/demo/7-policy.yaml", func(c map[string]any) {
		profile := c["profiles"].([]any)[0].(map[string]any)
		plugin := profile["pluginConfig"].([]any)[0].(map[string]any)
		plugin["args"].(map[string]any)["needsApproval"] = false
	})
}

// story makes everything happen that is measured: pods move for a gang, a rack is reserved, a queue borrows, another
// takes back what it deserves, and a second Reservation is too big. What is free in the end is too little for a member.
// Team b gets three gangs: 48 of the 49 GPUs that each team deserves.
func (d *demo) story() {
	d.Helper()
	d.shell(
		`kubectl apply -f hack/demo/7-notebooks.yaml
		 kubectl rollout status statefulset notebook -n notebooks --timeout 60s
		 kubectl apply -f hack/demo/7-gang.yaml
		 kubectl wait pod -n frontier -l scheduling.x-k8s.io/pod-group=train --for=condition=Ready --timeout 90s
		 kubectl wait dfp --all --for=jsonpath='{.status.phase}'=Succeeded --timeout 60s`,
		`kubectl delete job,statefulset,podgroup,dfp --all -A
		 kubectl wait pod --all -A --for=delete --timeout 60s`,
	)
	if err := d.AddNodes(d.Context(), localcluster.NodePool{Count: 1, NamePrefix: "small-", Allocatable: v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("2")}}); err != nil {
		d.Fatal(err)
	}
	d.shell(
		`kubectl apply -f hack/demo/6-tonight.yaml
		 kubectl wait reservation tonight --for=condition=Ready --timeout 30s
		 kubectl apply -f hack/demo/8-queues.yaml
		 for i in $(seq 8); do sed s/NAME/train-$i/ hack/demo/8-gang.yaml; done | kubectl apply -n team-a -f -
		 kubectl wait queue team-a --for=jsonpath='{.status.runningGangs}'=6 --timeout 60s`,
		`for i in $(seq 8); do sed s/NAME/train-$i/ hack/demo/8-gang.yaml; done | kubectl apply -n team-b -f -
		 kubectl wait queue team-b --for=jsonpath='{.status.runningGangs}'=3 --timeout 60s`,
		`sed 's/name: tonight/name: too-big/; s/replicas: 8/replicas: 80/' hack/demo/6-tonight.yaml | kubectl apply -f -`,
	)
}

// shell runs command lines at the top of the repository.
func (d *demo) shell(lines ...string) {
	d.Helper()
	for _, line := range lines {
		if _, err := d.Shell(d.Context(), line); err != nil {
			d.Fatal(err)
		}
	}
}

// prometheus is a Prometheus that runs.
type prometheus struct {
	url string
}

// prometheus starts one with the scrape configuration that users are given, as the service account that they bind the
// roles to. Targets are where the binaries are, since there are no pods to find.
func (d *demo) prometheus(binary string) *prometheus {
	d.Helper()
	token := filepath.Join(d.Dir(), "token")
	if err := os.WriteFile(token, []byte(d.token()), 0o600); err != nil {
		d.Fatal(err)
	}
	config := d.edited("manifests/monitoring/scrape.yaml", func(c map[string]any) {
		c["global"] = map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
		c["rule_files"] = []string{filepath.Join(d.root, "manifests", "monitoring", "alerts.yaml")}
		for _, s := range c["scrape_configs"].([]any) {
			job := s.(map[string]any)
			delete(job, "kubernetes_sd_configs")
			delete(job, "relabel_configs")
			job["authorization"] = map[string]any{"credentials_file": token}
			job["static_configs"] = []any{map[string]any{"targets": []string{d.targets[job["job_name"].(string)]}}}
		}
	})
	port, err := localcluster.FreePort()
	if err != nil {
		d.Fatal(err)
	}
	p := &prometheus{url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	process, err := d.Start("prometheus", binary, []string{
		"--config.file=" + config, "--storage.tsdb.path=" + d.TempDir(), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
	}, "")
	if err != nil {
		d.Fatal(err)
	}
	if err := process.WaitReady(d.Context(), p.url+"/-/ready"); err != nil {
		d.Fatal(err)
	}
	return p
}

// token returns a token of the service account of manifests/monitoring/role-binding.yaml.
func (d *demo) token() string {
	d.Helper()
	d.shell("kubectl create namespace monitoring", "kubectl create serviceaccount prometheus -n monitoring")
	if err := d.Apply(d.Context(), filepath.Join(d.root, "manifests", "monitoring")); err != nil {
		d.Fatal(err)
	}
	request, err := d.Clientset().CoreV1().ServiceAccounts("monitoring").CreateToken(d.Context(), "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	return request.Status.Token
}

// get calls the HTTP API.
func (p *prometheus) get(what string, values url.Values, into any) error {
	answer, err := http.Get(p.url + "/api/v1/" + what + "?" + values.Encode())
	if err != nil {
		return fmt.Errorf("asking Prometheus: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return fmt.Errorf("reading what Prometheus answers: %w", err)
	}
	if body.Status != "success" {
		return fmt.Errorf("asking Prometheus: %s", body.Error)
	}
	if err := json.Unmarshal(body.Data, into); err != nil {
		return fmt.Errorf("reading what Prometheus answers: %w", err)
	}
	return nil
}
